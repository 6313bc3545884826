package troupe

import (
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// The reasons that this client decides by, of a closed list that docs/api.md points to.
const (
	DepthLimit = "DEPTH_LIMIT"
)

// domain tells Troupe's reasons from those of whatever stands between.
const domain = "troupe.dev"

// Reason says why a call was refused. Texts may change between releases, reasons do not. Empty: err is no refusal.
func Reason(err error) string {
	info := detail[*errdetails.ErrorInfo](err)
	if info.GetDomain() != domain {
		return ""
	}
	return info.GetReason()
}

// retryDelay is how long the service asks to be left alone before the call is tried again.
func retryDelay(err error) time.Duration {
	return detail[*errdetails.RetryInfo](err).GetRetryDelay().AsDuration()
}

// detail is the first detail of type T in the error's status, or nil, of which the getters answer zero values.
func detail[T proto.Message](err error) T {
	for _, candidate := range status.Convert(err).Details() {
		if found, ok := candidate.(T); ok {
			return found
		}
	}
	var none T
	return none
}
