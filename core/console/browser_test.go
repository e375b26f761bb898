package console_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// browser is a headless Chromium with one page, driven over its debugging pipe.
type browser struct {
	t       *testing.T
	in      *os.File
	out     *bufio.Reader
	session string
	next    int
	errors  []string // of the page's console, and what its policy refused
}

// newBrowser skips the test where there is no Chromium: the package is named
// chromium in Debian, and LAYOVER_CHROMIUM names any other.
func newBrowser(t *testing.T, width, height int, dark bool) *browser {
	t.Helper()
	path := os.Getenv("LAYOVER_CHROMIUM")
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); path == "" && err == nil {
			path = found
		}
	}
	if path == "" {
		if os.Getenv("LAYOVER_TOOLS") != "" {
			t.Fatal("no Chromium: install the package chromium, or name one with LAYOVER_CHROMIUM")
		}
		t.Skip("no Chromium: install the package chromium, or name one with LAYOVER_CHROMIUM")
	}
	theirIn, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	profile, err := os.MkdirTemp("", "layover-chromium-")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
		"--user-data-dir="+profile, "--remote-debugging-pipe", "about:blank")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // its processes end together
	cmd.ExtraFiles = []*os.File{theirIn, theirOut}        // 3 and 4
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirIn.Close()
	theirOut.Close()
	b := &browser{t: t, in: in, out: bufio.NewReader(out)}
	kill := func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	dead := time.AfterFunc(2*time.Minute, kill) // or a lost answer would hang the test
	t.Cleanup(func() {
		dead.Stop()
		kill()
		_ = cmd.Wait()
		in.Close()
		out.Close()
		_ = os.RemoveAll(profile) // a dying process may still write there
	})
	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.call(domain+".enable", nil, nil)
	}
	b.resize(width, height, dark)
	return b
}

func (b *browser) resize(width, height int, dark bool) {
	b.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}, nil)
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// call sends one command and waits for its answer; what the page complains
// about meanwhile is kept.
func (b *browser) call(method string, params, result any) {
	b.t.Helper()
	b.next++
	if params == nil {
		params = struct{}{}
	}
	msg := map[string]any{"id": b.next, "method": method, "params": params}
	if b.session != "" {
		msg["sessionId"] = b.session
	}
	raw, err := json.Marshal(msg)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.in.Write(append(raw, 0)); err != nil {
		b.t.Fatal(err)
	}
	for {
		raw, err := b.out.ReadBytes(0)
		if err != nil {
			b.t.Fatalf("%s: the browser is gone: %v", method, err)
		}
		var answer struct {
			ID     int
			Method string
			Params json.RawMessage
			Result json.RawMessage
			Error  *struct{ Message string }
		}
		if err := json.Unmarshal(bytes.TrimSuffix(raw, []byte{0}), &answer); err != nil {
			b.t.Fatal(err)
		}
		switch {
		case answer.Method == "Log.entryAdded" || answer.Method == "Runtime.exceptionThrown":
			b.errors = append(b.errors, string(answer.Params))
		case answer.ID != b.next:
		case answer.Error != nil:
			b.t.Fatalf("%s: %s", method, answer.Error.Message)
		case result != nil:
			if err := json.Unmarshal(answer.Result, result); err != nil {
				b.t.Fatal(err)
			}
			return
		default:
			return
		}
	}
}

func (b *browser) open(address string) {
	b.t.Helper()
	b.call("Page.navigate", map[string]any{"url": address}, nil)
	b.until(`document.readyState === "complete" && location.href !== "about:blank"`)
}

// eval runs an expression of the page.
func (b *browser) eval(expression string) any {
	b.t.Helper()
	var out struct {
		Result           struct{ Value any }
		ExceptionDetails *struct{ Text string }
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &out)
	if out.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", expression, out.ExceptionDetails.Text)
	}
	return out.Result.Value
}

// until waits for an expression of the page to become true.
func (b *browser) until(expression string) {
	b.t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		// While a page changes, what it has is not there yet.
		if b.eval("(() => { try { return "+expression+" } catch { return false } })()") == true {
			return
		}
	}
	b.t.Fatalf("%s never became true; the page is\n%s", expression, b.eval("document.body.innerText"))
}

func (b *browser) text() string {
	b.t.Helper()
	return b.eval("document.body.innerText").(string)
}

// screenshot keeps a picture where LAYOVER_SCREENSHOTS says, for a person.
func (b *browser) screenshot(name string) {
	b.t.Helper()
	dir := os.Getenv("LAYOVER_SCREENSHOTS")
	if dir == "" {
		return
	}
	var shot struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
	png, err := base64.StdEncoding.DecodeString(shot.Data)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// quiet checks that the page asked for nothing its policy refuses and that its
// script did not fail.
func (b *browser) quiet() {
	b.t.Helper()
	for _, e := range b.errors {
		b.t.Errorf("the page complains: %s", e)
	}
}

// fits checks that a page does not scroll sideways.
func (b *browser) fits() {
	b.t.Helper()
	if wide := b.eval("document.documentElement.scrollWidth > document.documentElement.clientWidth"); wide == true {
		b.t.Errorf("%s is wider than the window: %v", b.eval("location.pathname"), b.eval(
			`[...document.querySelectorAll("main *")].filter(e => e.getBoundingClientRect().right > innerWidth).slice(0,4).map(e => e.tagName + "." + e.className).join(" ")`))
	}
}
