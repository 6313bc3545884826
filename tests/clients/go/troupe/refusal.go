package troupe

import (
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// The error reasons that this client uses. docs/api.md links to the full list.
const (
	DepthLimit = "DEPTH_LIMIT"
)

// domain distinguishes the reasons of Troupe from the reasons of proxies.
const domain = "troupe.dev"

// Reason returns the reason of a rejected call. Texts may change between releases, reasons do not. It is empty if the
// service did not reject the call.
func Reason(err error) string {
	info := detail[*errdetails.ErrorInfo](err)
	if info.GetDomain() != domain {
		return ""
	}
	return info.GetReason()
}

// retryDelay returns the service's minimum delay before a retry.
func retryDelay(err error) time.Duration {
	return detail[*errdetails.RetryInfo](err).GetRetryDelay().AsDuration()
}

// detail returns the first detail of type T in the error's status, or nil, whose getters return zero values.
func detail[T proto.Message](err error) T {
	for _, candidate := range status.Convert(err).Details() {
		if found, ok := candidate.(T); ok {
			return found
		}
	}
	var none T
	return none
}
