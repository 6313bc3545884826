package dev.troupe.client;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.URI;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/** Forwards connections between a client and a service, and can cut all of them. */
final class Relay implements AutoCloseable {
  private final URI service;
  private final ServerSocket listener = new ServerSocket(0, 0, InetAddress.getLoopbackAddress());
  private final List<Socket> fromClient = new CopyOnWriteArrayList<>();
  private final ExecutorService threads = Executors.newCachedThreadPool();

  Relay(String service) throws IOException {
    this.service = URI.create("tcp://" + service);
    threads.execute(this::accept);
  }

  /** Returns the address to which a client connects instead of the service. */
  String address() {
    return "127.0.0.1:" + listener.getLocalPort();
  }

  /** Cuts all connections. New connections are accepted. */
  void cut() {
    fromClient.forEach(Relay::closeQuietly);
  }

  /** Returns the number of connections so far. */
  int count() {
    return fromClient.size();
  }

  @Override
  public void close() throws IOException {
    listener.close();
    cut();
    threads.shutdown();
  }

  private void accept() {
    try {
      while (true) {
        Socket client = listener.accept();
        fromClient.add(client);
        Socket server = new Socket(service.getHost(), service.getPort());
        threads.execute(() -> copy(client, server));
        threads.execute(() -> copy(server, client));
      }
    } catch (IOException closed) {
      // The test has ended, or it will fail without a connection.
    }
  }

  /** Copies until either end is closed, which closes the other. */
  private static void copy(Socket from, Socket to) {
    try (from; to) {
      from.getInputStream().transferTo(to.getOutputStream());
    } catch (IOException cut) {
      // Expected: the connection was cut.
    }
  }

  private static void closeQuietly(Socket socket) {
    try {
      socket.close();
    } catch (IOException alreadyGone) {
      // Expected: the socket is already closed.
    }
  }
}
