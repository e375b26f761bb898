package sse_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/layover-run/layover/core/model/sse"
)

// all renders every event of a stream and how it ended.
func all(r *sse.Reader) (events []string, err error) {
	for {
		e, err := r.Next()
		if err != nil {
			return events, err
		}
		events = append(events, fmt.Sprintf("%s=%s", e.Name, e.Data))
	}
}

func TestFormat(t *testing.T) {
	for name, tc := range map[string]struct {
		stream string
		want   []string
		end    error
	}{
		"two":                 {"event: a\ndata: 1\n\ndata: 2\n\n", []string{"a=1", "=2"}, io.EOF},
		"CRLF":                {"event: a\r\ndata: 1\r\n\r\ndata: 2\r\n\r\n", []string{"a=1", "=2"}, io.EOF},
		"CR":                  {"event: a\rdata: 1\r\rdata: 2\r\r", []string{"a=1", "=2"}, io.EOF},
		"comments":            {": ping\n\n:\ndata: 1\n: inside\n\n", []string{"=1"}, io.EOF},
		"lines of data":       {"data: 1\ndata:2\ndata\ndata:  3\n\n", []string{"=1\n2\n\n 3"}, io.EOF},
		"empty data":          {"event: a\ndata\n\n", []string{"a="}, io.EOF},
		"no data, no event":   {"event: a\n\ndata: 1\n\n", []string{"=1"}, io.EOF},
		"other fields":        {"id: 7\nretry: 10\nfoo: bar\ndata: 1\n\n", []string{"=1"}, io.EOF},
		"byte order mark":     {"\xef\xbb\xbfdata: 1\n\n", []string{"=1"}, io.EOF},
		"colons in the data":  {"data: a: b\n\n", []string{"=a: b"}, io.EOF},
		"nothing":             {"", nil, io.EOF},
		"cut before its line": {"data: 1\n\nevent: a\ndata: 2\n", []string{"=1"}, io.ErrUnexpectedEOF},
		"cut in a line":       {"data: 1\n\ndata: 2", []string{"=1"}, io.ErrUnexpectedEOF},
		"cut in a field":      {"da", nil, io.ErrUnexpectedEOF},
	} {
		for way, source := range map[string]io.Reader{
			"at once": strings.NewReader(tc.stream), "byte by byte": iotest.OneByteReader(strings.NewReader(tc.stream)),
			"data with its end": iotest.DataErrReader(strings.NewReader(tc.stream)),
		} {
			got, err := all(sse.NewReader(source))
			if !slices.Equal(got, tc.want) || err != tc.end {
				t.Errorf("%s, %s: %q, %v; want %q, %v", name, way, got, err, tc.want, tc.end)
			}
		}
	}
}

// failure: A34
func TestLongLines(t *testing.T) {
	for _, size := range []int{65 << 10, 1_100_000, 5 << 20, sse.MaxEvent - len("data: ")} {
		line := "data: " + strings.Repeat("x", size)
		for _, end := range []string{"\n", "\r\n"} {
			stream := ": ping" + end + end + line + end + end + "data: after" + end + end
			got, err := all(sse.NewReader(chunks{rand.New(rand.NewPCG(1, uint64(size))), strings.NewReader(stream)}))
			if err != io.EOF || len(got) != 2 || len(got[0]) != size+1 || got[1] != "=after" {
				t.Errorf("a line of %d bytes: %d events, %v", len(line), len(got), err)
			}
		}
	}
	var long *sse.TooLongError
	r := sse.NewReader(strings.NewReader("data: " + strings.Repeat("x", sse.MaxEvent) + "\n\n"))
	if e, err := r.Next(); !errors.As(err, &long) || long.Limit != sse.MaxEvent || e.Data != nil {
		t.Errorf("over the limit: %d bytes, %v", len(e.Data), err)
	}
	if _, err := r.Next(); !errors.As(err, &long) {
		t.Errorf("after that: %v", err)
	}
	r = sse.NewReaderLimit(strings.NewReader("data: 12345\ndata: 12345\ndata: 1\n\n"), 12)
	if _, err := r.Next(); !errors.As(err, &long) || !strings.Contains(long.Error(), "12") {
		t.Errorf("an event of many lines: %v", err)
	}
}

// chunks reads in random pieces, as a network does.
type chunks struct {
	random *rand.Rand
	r      io.Reader
}

func (c chunks) Read(b []byte) (int, error) { return c.r.Read(b[:1+c.random.IntN(min(len(b), 9000))]) }

func TestSourceErrorIsNoEnd(t *testing.T) {
	broken := errors.New("connection reset")
	r := sse.NewReader(io.MultiReader(strings.NewReader("data: 1\n\ndata: 2\n"), iotest.ErrReader(broken)))
	if got, err := all(r); len(got) != 1 || err != broken {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := all(sse.NewReader(stuck{})); err != io.ErrNoProgress {
		t.Errorf("a source that gives nothing: %v", err)
	}
}

type stuck struct{}

func (stuck) Read([]byte) (int, error) { return 0, nil }

// An event is out with its last byte: nothing waits for the one behind it.
func TestNoReadingAhead(t *testing.T) {
	in, out := io.Pipe()
	go func() { _, _ = out.Write([]byte("data: 1\r\n\r")) }()
	if e, err := sse.NewReader(in).Next(); err != nil || string(e.Data) != "1" {
		t.Errorf("%q, %v", e.Data, err)
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte("event: a\ndata: 1\r\n\r\ndata: 2\r\r"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		whole, err := all(sse.NewReaderLimit(bytes.NewReader(stream), 64))
		pieces, err2 := all(sse.NewReaderLimit(iotest.OneByteReader(bytes.NewReader(stream)), 64))
		if !slices.Equal(whole, pieces) || fmt.Sprint(err) != fmt.Sprint(err2) {
			t.Fatalf("%q, %v in one piece; %q, %v in many", whole, err, pieces, err2)
		}
	})
}
