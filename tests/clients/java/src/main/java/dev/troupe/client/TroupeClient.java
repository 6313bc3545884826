package dev.troupe.client;

import io.grpc.Channel;
import io.grpc.ClientInterceptors;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.stub.MetadataUtils;
import java.util.ArrayList;
import java.util.List;
import dev.troupe.registry.v1.AgentRegistryServiceGrpc;
import dev.troupe.registry.v1.AgentRegistryServiceGrpc.AgentRegistryServiceBlockingStub;
import dev.troupe.registry.v1.Agent;
import dev.troupe.registry.v1.ListAgentsRequest;
import dev.troupe.registry.v1.ListAgentsResponse;
import dev.troupe.supervisor.v1.AgentSupervisorServiceGrpc;
import dev.troupe.supervisor.v1.AgentSupervisorServiceGrpc.AgentSupervisorServiceBlockingStub;

/** A client of a pair of Troupe services, based on the stubs that are generated from its protos. */
public final class TroupeClient implements AutoCloseable {
  private static final Metadata.Key<String> AUTHORIZATION =
      Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);

  private final ManagedChannel toRegistry;
  private final ManagedChannel toSupervisor;
  private final AgentRegistryServiceBlockingStub registry;
  private final AgentSupervisorServiceBlockingStub supervisor;

  /** Connects on first use to services at host:port. An empty token is not sent. */
  public TroupeClient(String registryAddress, String supervisorAddress, String token) {
    toRegistry = plaintext(registryAddress);
    toSupervisor = plaintext(supervisorAddress);
    registry = AgentRegistryServiceGrpc.newBlockingStub(authorized(toRegistry, token));
    supervisor = AgentSupervisorServiceGrpc.newBlockingStub(authorized(toSupervisor, token));
  }

  /**
   * Creates a client of the pair at TROUPE_REGISTRY and TROUPE_SUPERVISOR (host:port), by default the pair on this
   * machine's default ports. TROUPE_TOKEN is the caller's token.
   */
  public static TroupeClient fromEnvironment() {
    return new TroupeClient(Environment.REGISTRY, Environment.SUPERVISOR, Environment.TOKEN);
  }

  public AgentRegistryServiceBlockingStub registry() {
    return registry;
  }

  public AgentSupervisorServiceBlockingStub supervisor() {
    return supervisor;
  }

  /**
   * Lists the agent types of the project in {@code cwd}, by name and over all pages. Malformed templates are omitted.
   */
  public List<Agent> agents(String cwd) {
    ListAgentsRequest.Builder request =
        ListAgentsRequest.newBuilder().setCwd(cwd).setAllowPartial(true);
    List<Agent> agents = new ArrayList<>();
    do {
      ListAgentsResponse page = registry.listAgents(request.build());
      agents.addAll(page.getAgentsList());
      request.setPageToken(page.getNextPageToken());
    } while (!request.getPageToken().isEmpty());
    return agents;
  }

  /** Ends the channels, and with them every call. */
  @Override
  public void close() {
    toRegistry.shutdownNow();
    toSupervisor.shutdownNow();
  }

  // On one machine a token may go over plain TCP; across machines, give the services certificates.
  private static ManagedChannel plaintext(String address) {
    return Grpc.newChannelBuilder(address, InsecureChannelCredentials.create()).build();
  }

  private static Channel authorized(Channel channel, String token) {
    if (token.isEmpty()) {
      return channel;
    }
    Metadata headers = new Metadata();
    headers.put(AUTHORIZATION, "Bearer " + token);
    return ClientInterceptors.intercept(channel, MetadataUtils.newAttachHeadersInterceptor(headers));
  }
}
