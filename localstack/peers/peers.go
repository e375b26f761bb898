// Package peers gives tests a DynamoDB and an SQS to talk to: dynalite and
// fauxqs from npm, in one node process for each test binary.
//
// Nothing starts unless LAYOVER_PEERS=1, which `make peers` sets after it has
// installed them; without it a test skips and says so. With it a peer that is
// missing or does not start fails the test. LAYOVER_DYNAMODB_ENDPOINT and
// LAYOVER_SQS_ENDPOINT point the same tests at any other service, as the
// Account of the environment; docs/stores.md says how, and what came of it.
package peers

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// The variables that name a service other than the peers.
const (
	dynamoDBEndpoint = "LAYOVER_DYNAMODB_ENDPOINT"
	sqsEndpoint      = "LAYOVER_SQS_ENDPOINT"
)

// startFor bounds the start of the peers: they need less than a second on a
// quiet machine.
const startFor = 60 * time.Second

// DynamoDB is the endpoint of a DynamoDB. The process is shared by all tests
// of the binary, so each makes a table of a name of its own. It must not be
// called inside a synctest bubble, which would wait for the process to end.
func DynamoDB(t testing.TB) string {
	t.Helper()
	return endpoint(t, dynamoDBEndpoint, func(p *process) string { return p.DynamoDB })
}

// SQS is the endpoint of an SQS. It is shared like DynamoDB; a queue is used
// by the URL that CreateQueue answered, literally.
func SQS(t testing.TB) string {
	t.Helper()
	return endpoint(t, sqsEndpoint, func(p *process) string { return p.SQS })
}

// Keys are what a request is signed with.
type Keys struct{ Region, ID, Secret, Session string }

// Account is who asks the service that LAYOVER_DYNAMODB_ENDPOINT or
// LAYOVER_SQS_ENDPOINT names: AWS_REGION, AWS_ACCESS_KEY_ID,
// AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, as for any other client. Where
// one is missing, and for the peers, it is a made-up one: they do not look.
func Account() Keys {
	k := Keys{Region: "us-east-1", ID: "test", Secret: "test"}
	if os.Getenv(dynamoDBEndpoint) == "" && os.Getenv(sqsEndpoint) == "" {
		return k
	}
	for name, field := range map[string]*string{"AWS_REGION": &k.Region, "AWS_ACCESS_KEY_ID": &k.ID, "AWS_SECRET_ACCESS_KEY": &k.Secret, "AWS_SESSION_TOKEN": &k.Session} {
		if v := os.Getenv(name); v != "" {
			*field = v
		}
	}
	return k
}

func endpoint(t testing.TB, override string, of func(*process) string) string {
	t.Helper()
	if url := os.Getenv(override); url != "" {
		return url
	}
	if os.Getenv("LAYOVER_PEERS") != "1" {
		t.Skipf("no peers here: run `make peers`, or set %s", override)
	}
	p, err := shared()
	if err == nil {
		err = p.alive()
	}
	if err != nil {
		t.Fatalf("the peers do not answer: %v\nrun `make peers`, which installs and starts them (needs node and npm)", err)
	}
	return of(p)
}

// shared starts the peers once. The process and its standard input stay
// reachable from here: if the collector closed the pipe, the peers would end
// in the middle of a test.
var shared = sync.OnceValues(start)

type process struct {
	PID      int    `json:"pid"`
	DynamoDB string `json:"dynamodb"`
	SQS      string `json:"sqs"`

	stdin  io.WriteCloser // closing it ends the peers
	stderr *tail
	ended  chan struct{}
	err    error // after ended
}

func start() (*process, error) {
	dir, err := folder()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules")); err != nil {
		return nil, fmt.Errorf("not installed: %w", err)
	}
	cmd := exec.Command("node", "peers.mjs")
	cmd.Dir = dir
	p := &process{stderr: &tail{}, ended: make(chan struct{})}
	cmd.Stderr = p.stderr
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	late := time.AfterFunc(startFor, func() { _ = cmd.Process.Kill() })
	line, readErr := bufio.NewReader(stdout).ReadBytes('\n')
	late.Stop()
	go func() {
		_, _ = io.Copy(io.Discard, stdout)
		p.err = cmd.Wait()
		close(p.ended)
	}()
	if readErr != nil {
		<-p.ended
		return nil, fmt.Errorf("node ended before it was ready: %w\n%s", errors.Join(readErr, p.err), p.stderr)
	}
	if err := json.Unmarshal(line, p); err != nil {
		return nil, fmt.Errorf("node said %q: %w", line, err)
	}
	return p, nil
}

// alive says whether the process still runs, and how it ended if not.
func (p *process) alive() error {
	select {
	case <-p.ended:
		return fmt.Errorf("node ended during the tests: %v\n%s", p.err, p.stderr)
	default:
		return nil
	}
}

// folder finds localstack/peers from the folder of the package under test.
func folder() (string, error) {
	at, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		dir := filepath.Join(at, "localstack", "peers")
		if _, err := os.Stat(filepath.Join(dir, "peers.mjs")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(at)
		if up == at {
			return "", errors.New("localstack/peers is in no folder above this test")
		}
		at = up
	}
}

// tail keeps the end of what node said about its own trouble.
type tail struct {
	mu   sync.Mutex
	last []byte
}

const tailBytes = 4 << 10

func (b *tail) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = append(b.last, p...)
	if over := len(b.last) - tailBytes; over > 0 {
		b.last = bytes.Clone(b.last[over:])
	}
	return len(p), nil
}

func (b *tail) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.last)
}
