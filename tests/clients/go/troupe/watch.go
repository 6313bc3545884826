package troupe

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	supervisorv1 "github.com/troupe-dev/troupe/tests/clients/go/gen/troupe/supervisor/v1"
)

// Position is the position of a watch. A stored position resumes the watch in another process.
type Position struct {
	// After is the sequence of the last known event; nil before the first snapshot.
	After *uint64
	// LogID is the id of the log to which After belongs; empty before the first snapshot.
	LogID string
}

// Beginning is the position before a session's first event. The zero Position begins with a snapshot instead.
var Beginning = Position{After: proto.Uint64(0)}

// Watch follows a session across several streams, without losing or repeating an event. It must not be used by several
// goroutines at once.
type Watch struct {
	client    *Client
	sessionID string
	position  Position
	stream    grpc.ServerStreamingClient[supervisorv1.WatchThreadsResponse]
	cancel    context.CancelFunc
}

// Watch creates a watch of a session after a position.
func (c *Client) Watch(sessionID string, position Position) *Watch {
	return &Watch{client: c, sessionID: sessionID, position: position}
}

// Position returns the position of the watch after the last returned message.
func (w *Watch) Position() Position { return w.position }

// Drop closes the current stream. The next message comes from a new stream, which continues at the same position.
func (w *Watch) Drop() {
	if w.stream != nil {
		w.cancel()
		w.stream = nil
	}
}

// Messages returns the messages of the streams one after the other, until ctx ends or the service rejects the watch. A
// `reset` invalidates the earlier state, and a snapshot follows. An interrupted snapshot is repeated from its first
// part.
func (w *Watch) Messages(ctx context.Context) iter.Seq2[*supervisorv1.WatchThreadsResponse, error] {
	return func(yield func(*supervisorv1.WatchThreadsResponse, error) bool) {
		defer w.Drop()
		for {
			message, err := w.receive(ctx)
			if isLost(err) {
				w.Drop()
				err = pause(ctx, retryDelay(err))
				if err == nil {
					continue
				}
			}
			if err != nil {
				yield(nil, err)
				return
			}
			w.advance(message)
			if !yield(message, nil) {
				return
			}
		}
	}
}

// receive reads from the current stream, or from a new one if there is none.
func (w *Watch) receive(ctx context.Context) (*supervisorv1.WatchThreadsResponse, error) {
	if w.stream == nil {
		streamCtx, cancel := context.WithCancel(ctx)
		request := &supervisorv1.WatchThreadsRequest{
			SessionId:     w.sessionID,
			AfterSequence: w.position.After,
			LogId:         w.position.LogID,
		}
		// While the service is unavailable, the connection waits with a backoff instead of this loop.
		stream, err := w.client.Supervisor.WatchThreads(streamCtx, request, grpc.WaitForReady(true))
		if err != nil {
			cancel()
			return nil, err
		}
		w.stream, w.cancel = stream, cancel
	}
	return w.stream.Recv()
}

func (w *Watch) advance(message *supervisorv1.WatchThreadsResponse) {
	switch said := message.GetMessage().(type) {
	case *supervisorv1.WatchThreadsResponse_Reset_:
		w.Drop()
		w.position = Position{}
		return
	case *supervisorv1.WatchThreadsResponse_Snapshot:
		w.position.LogID = said.Snapshot.GetLogId()
		if !said.Snapshot.GetLast() {
			return
		}
	case *supervisorv1.WatchThreadsResponse_Telemetry, *supervisorv1.WatchThreadsResponse_Output:
		return // they have no sequence
	}
	// Messages of unknown kinds may have no sequence either.
	if message.GetSequence() > 0 {
		w.position.After = proto.Uint64(message.GetSequence())
	}
}

// isLost returns whether a stream ended without an error of the request: because its lifetime was over, or because the
// service or the connection was lost.
func isLost(err error) bool {
	return errors.Is(err, io.EOF) || status.Code(err) == codes.Unavailable
}

func pause(ctx context.Context, delay time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(delay):
		return nil
	}
}
