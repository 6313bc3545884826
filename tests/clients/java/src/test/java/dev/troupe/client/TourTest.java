package dev.troupe.client;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.junit.jupiter.api.Test;

class TourTest {
  @Test
  void tour() throws InterruptedException {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    try (TroupeClient client = TroupeClient.fromEnvironment()) {
      new Tour(client, new PrintStream(out, true, StandardCharsets.UTF_8)).run();
    }
    String printed = out.toString(StandardCharsets.UTF_8);
    for (String expected : List.of("explorer", "refused: ", "THREAD_CLOSED", "SESSION_CLOSED")) {
      assertTrue(printed.contains(expected), () -> expected + " is missing in:\n" + printed);
    }
  }
}
