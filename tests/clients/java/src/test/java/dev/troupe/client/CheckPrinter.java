package dev.troupe.client;

import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;

/** Prints a line for each check: {@code ok NAME} or {@code FAILED NAME: why}. */
public final class CheckPrinter implements TestExecutionListener {
  @Override
  public void executionFinished(TestIdentifier test, TestExecutionResult result) {
    String name = test.getDisplayName().replace("()", "");
    if (result.getStatus() != TestExecutionResult.Status.SUCCESSFUL) {
      String why = result.getThrowable().map(Throwable::toString).orElse("aborted");
      System.out.printf("FAILED %s: %s%n", name, why.replace('\n', ' '));
    } else if (test.isTest()) {
      System.out.printf("ok %s%n", name);
    }
  }
}
