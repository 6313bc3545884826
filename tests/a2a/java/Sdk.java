import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.sun.net.httpserver.HttpServer;
import io.grpc.Channel;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.a2aproject.sdk.A2A;
import org.a2aproject.sdk.client.Client;
import org.a2aproject.sdk.client.TaskEvent;
import org.a2aproject.sdk.client.TaskUpdateEvent;
import org.a2aproject.sdk.client.config.ClientConfig;
import org.a2aproject.sdk.client.transport.grpc.GrpcTransport;
import org.a2aproject.sdk.client.transport.grpc.GrpcTransportConfig;
import org.a2aproject.sdk.client.transport.jsonrpc.JSONRPCTransport;
import org.a2aproject.sdk.client.transport.jsonrpc.JSONRPCTransportConfig;
import org.a2aproject.sdk.client.transport.rest.RestTransport;
import org.a2aproject.sdk.client.transport.rest.RestTransportConfig;
import org.a2aproject.sdk.client.transport.spi.ClientTransport;
import org.a2aproject.sdk.client.transport.spi.ClientTransportConfig;
import org.a2aproject.sdk.client.transport.spi.interceptors.ClientCallContext;
import org.a2aproject.sdk.client.transport.spi.interceptors.ClientCallInterceptor;
import org.a2aproject.sdk.client.transport.spi.interceptors.PayloadAndHeaders;
import org.a2aproject.sdk.client.transport.spi.interceptors.auth.AuthInterceptor;
import org.a2aproject.sdk.spec.AgentCard;
import org.a2aproject.sdk.spec.Artifact;
import org.a2aproject.sdk.spec.AuthenticationInfo;
import org.a2aproject.sdk.spec.CancelTaskParams;
import org.a2aproject.sdk.spec.ListTasksParams;
import org.a2aproject.sdk.spec.Message;
import org.a2aproject.sdk.spec.MessageSendConfiguration;
import org.a2aproject.sdk.spec.MessageSendParams;
import org.a2aproject.sdk.spec.Part;
import org.a2aproject.sdk.spec.Task;
import org.a2aproject.sdk.spec.TaskArtifactUpdateEvent;
import org.a2aproject.sdk.spec.TaskIdParams;
import org.a2aproject.sdk.spec.TaskPushNotificationConfig;
import org.a2aproject.sdk.spec.TaskQueryParams;
import org.a2aproject.sdk.spec.TaskState;
import org.a2aproject.sdk.spec.TaskStatusUpdateEvent;
import org.a2aproject.sdk.spec.TextPart;

/**
 * Checks of the A2A port with the official Java SDK. See ../README.md.
 *
 * <p>The port is at TROUPE_A2A (a URL), with the token TROUPE_A2A_TOKEN. Its agent is ../agent.py.
 */
final class Sdk {
  private static final String URL = System.getenv("TROUPE_A2A");
  private static final String TOKEN = System.getenv("TROUPE_A2A_TOKEN");
  private static final List<String> BINDINGS = List.of("JSONRPC", "HTTP+JSON", "GRPC");
  private static final int WITHIN_SECONDS = 30;

  private static final Map<String, Channel> CHANNELS = new HashMap<>();

  private static final ClientCallInterceptor AUTHENTICATION = new AuthInterceptor((scheme, context) -> TOKEN);

  /** Sends the headers of a call's context. The gRPC transport sends them only if an interceptor returns them. */
  private static final ClientCallInterceptor HEADERS =
      new ClientCallInterceptor() {
        @Override
        public PayloadAndHeaders intercept(
            String method, Object payload, Map<String, String> headers, AgentCard card, ClientCallContext context) {
          Map<String, String> all = new HashMap<>(headers);
          if (context != null) {
            all.putAll(context.getHeaders());
          }
          return new PayloadAndHeaders(payload, all);
        }
      };

  /** A check of a binding. */
  private interface Check<I, O> {
    O run(String binding, I input) throws Exception;
  }

  /** The tasks of a binding when the services are killed. */
  private record Tasks(Task completed, Task asked, Stream stream, String id, String position) {}

  /** The events of a stream. */
  private static final class Stream {
    private final BlockingQueue<Object> events = new LinkedBlockingQueue<>();

    void subscribe(Client client, String task, Map<String, String> headers) throws Exception {
      ClientCallContext context = new ClientCallContext(Map.of(), headers);
      client.subscribeToTask(new TaskIdParams(task), List.of((event, card) -> add(event)), events::add, context);
    }

    void send(Client client, MessageSendParams message) throws Exception {
      client.sendMessage(message, List.of((event, card) -> add(event)), events::add, null);
    }

    private void add(Object event) {
      events.add(event instanceof TaskUpdateEvent update ? update.getUpdateEvent() : ((TaskEvent) event).getTask());
    }

    /** Returns the next event, or the error that has ended the stream. */
    Object take() throws Exception {
      Object event = events.poll(WITHIN_SECONDS, TimeUnit.SECONDS);
      if (event == null) {
        throw new AssertionError("no event within " + WITHIN_SECONDS + " s");
      }
      return event;
    }

    <T> T next(Class<T> type) throws Exception {
      Object event = take();
      if (event instanceof Throwable error) {
        throw new AssertionError("the stream has failed", error);
      }
      return type.cast(event);
    }

    /** Returns the events up to the last status. The SDK does not report the end of a stream. */
    List<Object> rest() throws Exception {
      List<Object> rest = new ArrayList<>();
      Object event;
      do {
        event = next(Object.class);
        rest.add(event);
      } while (!(event instanceof TaskStatusUpdateEvent update && update.isFinal()));
      return rest;
    }
  }

  private static <T extends ClientTransport> Client connect(
      Class<T> transport, ClientTransportConfig<T> config, boolean streaming, List<ClientCallInterceptor> interceptors)
      throws Exception {
    config.setInterceptors(interceptors);
    ClientConfig client = ClientConfig.builder().setStreaming(streaming).build();
    return Client.builder(A2A.getAgentCard(URL)).clientConfig(client).withTransport(transport, config).build();
  }

  private static Channel channel(String address) {
    return CHANNELS.computeIfAbsent(
        address, target -> Grpc.newChannelBuilder(target, InsecureChannelCredentials.create()).build());
  }

  private static Client connect(String binding, boolean streaming, ClientCallInterceptor... interceptors)
      throws Exception {
    List<ClientCallInterceptor> all = List.of(interceptors);
    return switch (binding) {
      case "JSONRPC" -> connect(JSONRPCTransport.class, new JSONRPCTransportConfig(), streaming, all);
      case "HTTP+JSON" -> connect(RestTransport.class, new RestTransportConfig(), streaming, all);
      default -> connect(GrpcTransport.class, new GrpcTransportConfig(Sdk::channel), streaming, all);
    };
  }

  /** Returns a client of the default agent, whose messages wait for their task. */
  private static Client blocking(String binding) throws Exception {
    return connect(binding, false, AUTHENTICATION);
  }

  private static Client streaming(String binding) throws Exception {
    return connect(binding, true, AUTHENTICATION, HEADERS);
  }

  /** Returns a message. The prefix of its id selects what agent.py does. */
  private static MessageSendParams request(
      String prefix, String text, String task, String context, MessageSendConfiguration configuration) {
    Message message =
        Message.builder()
            .messageId("tck-" + prefix + "-" + UUID.randomUUID())
            .role(Message.Role.ROLE_USER)
            .parts(new TextPart(text))
            .taskId(task)
            .contextId(context)
            .build();
    return MessageSendParams.builder().message(message).configuration(configuration).build();
  }

  private static MessageSendParams request(String prefix, String text, String task) {
    return request(prefix, text, task, null, MessageSendConfiguration.builder().returnImmediately(false).build());
  }

  private static MessageSendParams request(String prefix) {
    return request(prefix, "Hello", null);
  }

  /** Sends a message and returns its task. */
  private static Task send(Client client, MessageSendParams message) throws Exception {
    Stream stream = new Stream();
    stream.send(client, message);
    return stream.next(Task.class);
  }

  private static Task get(Client client, Task task) throws Exception {
    return client.getTask(new TaskQueryParams(task.id()));
  }

  private static void expect(Object found, Object expected) {
    if (!Objects.equals(found, expected)) {
      throw new AssertionError("expected " + expected + ", found " + found);
    }
  }

  private static List<String> texts(List<Part<?>> parts) {
    return parts.stream().map(part -> ((TextPart) part).text()).toList();
  }

  private static List<Artifact> artifacts(List<Object> events) {
    return events.stream()
        .filter(TaskArtifactUpdateEvent.class::isInstance)
        .map(event -> ((TaskArtifactUpdateEvent) event).artifact())
        .toList();
  }

  private static TaskState lastState(List<Object> events) {
    return ((TaskStatusUpdateEvent) events.get(events.size() - 1)).status().state();
  }

  private static Void blockingMessage(String binding, Void none) throws Exception {
    Client client = blocking(binding);
    Task task = send(client, request("complete-task"));
    expect(task.status().state(), TaskState.TASK_STATE_COMPLETED);
    expect(texts(task.artifacts().get(0).parts()), List.of("Hello from TCK"));
    List<String> history = get(client, task).history().stream().flatMap(entry -> texts(entry.parts()).stream()).toList();
    expect(history, List.of("Hello", "Hello from TCK"));
    Task second = send(client, request("complete-task", "Hello", null, task.contextId(), null));
    // Over JSON-RPC, the SDK rejects a page with fewer tasks than its size (ListTasksResult), so the page must be full.
    ListTasksParams page = ListTasksParams.builder().contextId(task.contextId()).pageSize(2).tenant("").build();
    List<Task> listed = client.listTasks(page).tasks();
    expect(listed.stream().map(Task::id).toList(), List.of(second.id(), task.id()));
    return null;
  }

  private static Void streamedMessage(String binding, Void none) throws Exception {
    Stream stream = new Stream();
    stream.send(streaming(binding), request("stream-001"));
    Task task = stream.next(Task.class);
    List<Object> rest = stream.rest();
    List<Class<?>> types =
        List.of(TaskStatusUpdateEvent.class, TaskArtifactUpdateEvent.class, TaskStatusUpdateEvent.class);
    expect(rest.stream().map(Object::getClass).toList(), types);
    expect(texts(artifacts(rest).get(0).parts()), List.of("Stream hello from TCK"));
    expect(lastState(rest), TaskState.TASK_STATE_COMPLETED);
    expect(((TaskStatusUpdateEvent) rest.get(2)).taskId(), task.id());
    return null;
  }

  private static Void question(String binding, Void none) throws Exception {
    Client client = blocking(binding);
    Task task = send(client, request("input-required"));
    expect(task.status().state(), TaskState.TASK_STATE_INPUT_REQUIRED);
    expect(texts(task.status().message().parts()), List.of("What next?"));
    Task done = send(client, request("complete-task", "This", task.id()));
    expect(done.id(), task.id());
    expect(done.status().state(), TaskState.TASK_STATE_COMPLETED);
    return null;
  }

  private static Void cancellation(String binding, Void none) throws Exception {
    Client client = blocking(binding);
    MessageSendConfiguration immediately = MessageSendConfiguration.builder().returnImmediately(true).build();
    Task task = send(client, request("complete-task", "hold", null, null, immediately));
    Stream stream = new Stream();
    stream.subscribe(streaming(binding), task.id(), Map.of());
    expect(stream.next(Task.class).id(), task.id());
    Task canceled = client.cancelTask(new CancelTaskParams(task.id()));
    expect(canceled.status().state(), TaskState.TASK_STATE_CANCELED);
    expect(lastState(stream.rest()), TaskState.TASK_STATE_CANCELED);
    return null;
  }

  /** A push notification. */
  private record Notification(List<String> credentials, JsonObject update) {}

  private static Void push(String binding, Void none) throws Exception {
    BlockingQueue<Notification> received = new LinkedBlockingQueue<>();
    HttpServer webhook = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
    webhook.createContext(
        "/hook",
        exchange -> {
          var headers = exchange.getRequestHeaders();
          var body = new InputStreamReader(exchange.getRequestBody());
          List<String> credentials =
              List.of(headers.getFirst("Authorization"), headers.getFirst("X-A2A-Notification-Token"));
          received.add(new Notification(credentials, JsonParser.parseReader(body).getAsJsonObject()));
          exchange.sendResponseHeaders(204, -1);
          exchange.close();
        });
    webhook.start();
    TaskPushNotificationConfig config =
        TaskPushNotificationConfig.builder()
            .id("hook")
            .url("http://127.0.0.1:" + webhook.getAddress().getPort() + "/hook")
            .token("token")
            .authentication(new AuthenticationInfo("Bearer", "secret"))
            .build();
    MessageSendConfiguration configuration =
        MessageSendConfiguration.builder().returnImmediately(false).taskPushNotificationConfig(config).build();
    Task task = send(blocking(binding), request("stream-001", "Hello", null, null, configuration));
    JsonObject update = null;
    for (String kind : List.of("statusUpdate", "statusUpdate", "artifactUpdate", "statusUpdate")) {
      Notification notification = received.poll(WITHIN_SECONDS, TimeUnit.SECONDS);
      expect(notification.credentials(), List.of("Bearer secret", "token"));
      expect(notification.update().keySet().iterator().next(), kind);
      update = notification.update().getAsJsonObject(kind);
      expect(update.get("taskId").getAsString(), task.id());
    }
    expect(update.getAsJsonObject("status").get("state").getAsString(), "TASK_STATE_COMPLETED");
    webhook.stop(0);
    return null;
  }

  private static Void extendedCard(String binding, Void none) throws Exception {
    AgentCard card = streaming(binding).getExtendedAgentCard();
    expect(card.capabilities().extensions().stream().filter(one -> one.uri().contains("limits")).count(), 1L);
    return null;
  }

  private static Void callWithoutToken(String binding, Void none) throws Exception {
    try {
      connect(binding, false).getTask(new TaskQueryParams("none"));
    } catch (Exception error) {
      // The SDK does not report the message of the service.
      expect(error.getMessage().contains("Authentication failed"), true);
      return null;
    }
    throw new AssertionError("the call has succeeded");
  }

  private static Tasks beforeRestart(String binding, Void none) throws Exception {
    Client client = blocking(binding);
    Task completed = send(client, request("complete-task"));
    Task asked = send(client, request("input-required"));
    expect(asked.status().state(), TaskState.TASK_STATE_INPUT_REQUIRED);
    Stream stream = new Stream();
    stream.send(streaming(binding), request("stream-001", "hold", null));
    Task task = stream.next(Task.class);
    TaskStatusUpdateEvent working = stream.next(TaskStatusUpdateEvent.class);
    expect(working.status().state(), TaskState.TASK_STATE_WORKING);
    return new Tasks(completed, asked, stream, task.id(), (String) working.metadata().get("troupe/sequence"));
  }

  private static Void afterRestart(String binding, Tasks tasks) throws Exception {
    expect(tasks.stream().take() instanceof Throwable, true);
    Client client = blocking(binding);
    expect(get(client, tasks.completed()).artifacts(), tasks.completed().artifacts());
    Task done = send(client, request("complete-task", "This", tasks.asked().id()));
    expect(done.status().state(), TaskState.TASK_STATE_COMPLETED);

    Stream stream = new Stream();
    stream.subscribe(streaming(binding), tasks.id(), Map.of("troupe-after-sequence", tasks.position()));
    Task task = stream.next(Task.class);
    expect(task.id(), tasks.id());
    expect(task.status().state(), TaskState.TASK_STATE_WORKING);
    send(client, request("stream-001", "Continue", task.id()));
    List<Object> rest = stream.rest();
    List<Artifact> artifacts = artifacts(rest);
    expect(artifacts.stream().flatMap(artifact -> texts(artifact.parts()).stream()).toList(), List.of("Stream hello from TCK"));
    expect(lastState(rest), TaskState.TASK_STATE_COMPLETED);
    expect(get(client, task).artifacts(), artifacts);
    return null;
  }

  /** Runs a check and prints its result. */
  private static <I, O> O check(String binding, String name, Check<I, O> check, I input) {
    try {
      O output = check.run(binding, input);
      System.out.printf("ok %s %s%n", binding, name);
      return output;
    } catch (Exception | AssertionError error) {
      System.out.printf("FAILED %s %s%n  %s%n", binding, name, error.toString().replace("\n", " "));
      error.printStackTrace();
      return null;
    }
  }

  public static void main(String[] arguments) throws Exception {
    Map<String, Check<Void, Void>> checks = new LinkedHashMap<>();
    checks.put("blocking message", Sdk::blockingMessage);
    checks.put("streamed message", Sdk::streamedMessage);
    checks.put("question", Sdk::question);
    checks.put("cancellation", Sdk::cancellation);
    checks.put("push", Sdk::push);
    checks.put("extended card", Sdk::extendedCard);
    checks.put("call without a token", Sdk::callWithoutToken);
    BINDINGS.forEach(binding -> checks.forEach((name, check) -> check(binding, name, check, null)));
    Map<String, Tasks> tasks = new HashMap<>();
    for (String binding : BINDINGS) {
      tasks.put(binding, check(binding, "tasks before kill -9", Sdk::beforeRestart, null));
    }
    System.out.println("restart");
    System.in.read();
    for (String binding : BINDINGS) {
      if (tasks.get(binding) != null) {
        check(binding, "tasks survive kill -9 during a stream", Sdk::afterRestart, tasks.get(binding));
      }
    }
    // The clients keep threads.
    System.exit(0);
  }
}
