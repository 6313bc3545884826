package troupe_test

import (
	"context"
	"net"
	"sync"
)

// wires dials connections and can cut all of them.
type wires struct {
	mutex  sync.Mutex
	dialed []net.Conn
}

func (w *wires) dial(ctx context.Context, address string) (net.Conn, error) {
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if err == nil {
		w.mutex.Lock()
		defer w.mutex.Unlock()
		w.dialed = append(w.dialed, connection)
	}
	return connection, err
}

func (w *wires) cut() {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for _, connection := range w.dialed {
		_ = connection.Close()
	}
}

func (w *wires) count() int {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return len(w.dialed)
}
