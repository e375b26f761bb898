package refund

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// entry is one line of the ledger, which plays the part of a payment provider.
type entry struct {
	Operation   string    `json:"operation"` // the same however often the call runs
	OrderID     string    `json:"orderId"`
	AmountCents int64     `json:"amountCents"`
	At          time.Time `json:"at"`
}

func (e entry) refund() Refund {
	return Refund{Refunded: true, RefundID: "refund-" + e.Operation, OrderID: e.OrderID, AmountCents: e.AmountCents}
}

// ledger is refunds.jsonl in the directory LAYOVER_DATA, or in .layover.
func ledger() string {
	dir := os.Getenv("LAYOVER_DATA")
	if dir == "" {
		dir = ".layover"
	}
	return filepath.Join(dir, "refunds.jsonl")
}

func (e entry) append() error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(ledger()), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(ledger(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Sync(), f.Close())
}

func findEntry(operation string) (entry, bool, error) {
	raw, err := os.ReadFile(ledger())
	if errors.Is(err, fs.ErrNotExist) {
		return entry{}, false, nil
	} else if err != nil {
		return entry{}, false, err
	}
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for lines.Scan() {
		var e entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return entry{}, false, err // a damaged ledger knows nothing: ask a person
		}
		if e.Operation == operation {
			return e, true, nil
		}
	}
	return entry{}, false, lines.Err()
}
