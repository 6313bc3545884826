// Why a call was refused. The reason is what a program decides by: texts may improve, reasons do not change.

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

/** What the trailer grpc-status-details-bin says; the reason is empty where it was not Troupe that answered. */
export function refusalOf(error: ClientError): Refusal {
  const { code, details: message } = error;
  // The middleware decodes the details that it finds, and makes the error a rich one.
  for (const detail of error instanceof RichClientError ? error.extra : []) {
    if (detail.$type === ErrorInfo.$type && detail.domain === DOMAIN) {
      return { code, reason: detail.reason, message, metadata: detail.metadata };
    }
  }
  return { code, reason: "", message, metadata: {} };
}
