package dev.troupe.client;

import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.Message;
import com.google.rpc.ErrorInfo;
import com.google.rpc.RetryInfo;
import com.google.rpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;
import java.time.Duration;
import java.util.Optional;

/** Reads the details of a failed call. */
public final class Refusal {
  /** The thread would be deeper than the session's limits allow. */
  public static final String DEPTH_LIMIT = "DEPTH_LIMIT";

  /** Distinguishes the reasons of Troupe from the reasons of proxies. */
  private static final String DOMAIN = "troupe.dev";

  private Refusal() {}

  /**
   * Returns the reason of a rejected call. Texts may change between releases, reasons do not; docs/api.md links to
   * their list. It is empty if the error does not come from the service.
   */
  public static String reason(StatusRuntimeException failure) {
    return detail(failure, ErrorInfo.class)
        .filter(info -> info.getDomain().equals(DOMAIN))
        .map(ErrorInfo::getReason)
        .orElse("");
  }

  /** Returns the service's minimum delay before a retry. */
  static Duration retryDelay(StatusRuntimeException failure) {
    return detail(failure, RetryInfo.class)
        .map(RetryInfo::getRetryDelay)
        .map(delay -> Duration.ofSeconds(delay.getSeconds(), delay.getNanos()))
        .orElse(Duration.ZERO);
  }

  private static <T extends Message> Optional<T> detail(
      StatusRuntimeException failure, Class<T> type) {
    Status status = StatusProto.fromThrowable(failure);
    for (Any any : status.getDetailsList()) {
      if (any.is(type)) {
        try {
          return Optional.of(any.unpack(type));
        } catch (InvalidProtocolBufferException malformed) {
          throw new IllegalArgumentException(malformed);
        }
      }
    }
    return Optional.empty();
  }
}
