package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/layover-run/layover/functions"
)

// Limits of the server. A stream of events sets deadlines of its own.
const (
	headerTimeout = 10 * time.Second
	readTimeout   = 2 * functions.MaxWait // it also ends requests that wait
	writeTimeout  = 2 * functions.MaxWait
	idleTimeout   = 2 * time.Minute
	headerBytes   = 64 << 10
	// closeRequests is how long open requests may take to end at a stop.
	closeRequests = 5 * time.Second
)

// MinToken is the shortest token Serve takes, in bytes: it is the only lock on
// an address that others can reach.
const MinToken = 16

// ErrNeedsToken refuses to serve an address that others can reach to everybody.
var ErrNeedsToken = errors.New("an address that is not only for this machine needs a token")

// ServeOptions configures Serve.
type ServeOptions struct {
	// Token is what every request has to show as its bearer token. Required
	// where the address is not a loopback one; at least MinToken bytes.
	Token string
}

// Serve answers requests on a listener until ctx ends, and then lets the open
// ones end: streams at once, commands within 5 s. It returns nil after that,
// and closes the listener in any case.
func (rt *Runtime) Serve(ctx context.Context, l net.Listener, o ServeOptions) error {
	defer l.Close()
	if err := CheckToken(l.Addr().String(), o.Token); err != nil {
		return fmt.Errorf("embedded: %s: %w", l.Addr(), err)
	}
	return serve(ctx, l, rt.handler(o.Token), rt.cfg.Log)
}

// CheckToken reports whether an address may be served with a token.
func CheckToken(address, token string) error {
	if token == "" && !functions.LoopbackHost(address) {
		return ErrNeedsToken
	}
	if token != "" && len(token) < MinToken {
		return fmt.Errorf("the token is shorter than %d bytes", MinToken)
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("the token has characters a header cannot carry: use letters and digits")
	}
	return nil
}

func serve(ctx context.Context, l net.Listener, handler http.Handler, log *slog.Logger) error {
	requests, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	srv := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    headerBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return requests },
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("embedded: the server stopped: %w", err)
	case <-ctx.Done():
	}
	cancel() // requests that wait answer with what is known; commands go on
	ending, stop := context.WithTimeout(context.WithoutCancel(ctx), closeRequests)
	defer stop()
	if err := srv.Shutdown(ending); err != nil {
		return srv.Close()
	}
	return nil
}
