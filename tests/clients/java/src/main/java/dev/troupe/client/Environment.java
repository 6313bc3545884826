package dev.troupe.client;

/** The variables of the environment for the pair. */
final class Environment {
  static final String REGISTRY = read("TROUPE_REGISTRY", "127.0.0.1:50051");
  static final String SUPERVISOR = read("TROUPE_SUPERVISOR", "127.0.0.1:50052");
  static final String TOKEN = read("TROUPE_TOKEN", "");

  /** A directory within the pair's workspace roots; empty for none. */
  static final String PROJECT = read("TROUPE_PROJECT", "");

  private Environment() {}

  private static String read(String name, String otherwise) {
    return System.getenv().getOrDefault(name, otherwise);
  }
}
