// The reason of a rejected call. Programs should use the reason: texts may change, reasons do not.

import { ClientError, Status } from "nice-grpc";
import { ErrorInfo, RichClientError } from "nice-grpc-error-details";

const DOMAIN = "troupe.dev";

/** An error of the API. */
export interface Refusal {
  readonly code: Status;
  readonly reason: string;
  readonly message: string;
  readonly metadata: Readonly<Record<string, string>>;
}

/** Reads the trailer grpc-status-details-bin. The reason is empty if the error does not come from Troupe. */
export function refusalOf(error: ClientError): Refusal {
  const { code, details: message } = error;
  // The middleware decodes the details and adds them to the error.
  for (const detail of error instanceof RichClientError ? error.extra : []) {
    if (detail.$type === ErrorInfo.$type && detail.domain === DOMAIN) {
      return { code, reason: detail.reason, message, metadata: detail.metadata };
    }
  }
  return { code, reason: "", message, metadata: {} };
}
