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

// Position is how far a watch has come. Whoever keeps it can go on from there in another process.
type Position struct {
	// After is the sequence up to which everything is known; nil before the first snapshot.
	After *uint64
	// LogID names the log that After counts in; empty until a snapshot has named it.
	LogID string
}

// Beginning is the position before a session's first event. The zero Position begins with a snapshot instead.
var Beginning = Position{After: proto.Uint64(0)}

// Watch follows a session over as many streams as that takes, without losing or doubling an event. It is not for
// several goroutines at once.
type Watch struct {
	client    *Client
	sessionID string
	position  Position
	stream    grpc.ServerStreamingClient[supervisorv1.WatchThreadsResponse]
	cancel    context.CancelFunc
}

// Watch begins to follow a session after a position.
func (c *Client) Watch(sessionID string, position Position) *Watch {
	return &Watch{client: c, sessionID: sessionID, position: position}
}

// Position is where the watch is, after the last message that was handed out.
func (w *Watch) Position() Position { return w.position }

// Drop gives up the present stream. The next message comes from another one, which goes on where this one was.
func (w *Watch) Drop() {
	if w.stream != nil {
		w.cancel()
		w.stream = nil
	}
}

// Messages hands out what the streams say, one message after the other, until ctx ends or the service refuses. After a
// `reset` what was known is void, and a snapshot follows. One that was interrupted is repeated from its first part.
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

// receive reads from the present stream, or from a new one if there is none.
func (w *Watch) receive(ctx context.Context) (*supervisorv1.WatchThreadsResponse, error) {
	if w.stream == nil {
		streamCtx, cancel := context.WithCancel(ctx)
		request := &supervisorv1.WatchThreadsRequest{
			SessionId:     w.sessionID,
			AfterSequence: w.position.After,
			LogId:         w.position.LogID,
		}
		// While the service is away, the connection waits and backs off instead of this loop.
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
		return // they have no place in the order
	}
	// Of a kind that is not known yet, it may have none either.
	if message.GetSequence() > 0 {
		w.position.After = proto.Uint64(message.GetSequence())
	}
}

// isLost tells a stream that ended for no fault of the request: its lifetime was over, or the service or the way to it
// went away.
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
