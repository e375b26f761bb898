package core

import (
	"fmt"
	"time"

	"github.com/layover-run/layover/core/record"
)

// Rule names one thing that must hold for everything a store keeps about a
// conversation. The letters are the invariants of the storage protocol.
type Rule string

// The rules of CheckConversation.
const (
	RuleDamaged   Rule = "damaged"   // a batch is what its writer sealed, for this conversation
	RuleSlot      Rule = "slot"      // slots follow one another without a gap
	RuleChain     Rule = "chain"     // each batch names the digest of the one before
	RuleEpoch     Rule = "epoch"     // no batch of an older epoch behind a newer one; an attempt's first record starts it (I2)
	RuleIdentity  Rule = "identity"  // batch, attempt and operation ids are used once (F5)
	RuleStart     Rule = "start"     // a submission enters the log once and its run starts once (I1)
	RuleLane      Rule = "lane"      // one open run per lane (I1)
	RuleTerminal  Rule = "terminal"  // one terminal record per run, which names what still waits (I1, F16)
	RuleOrder     Rule = "order"     // runs start, or end unstarted, in inbox order (I5)
	RuleUncertain Rule = "uncertain" // an uncertain handler starts again only after a resolution that allows it (I6)
	RuleEarly     Rule = "early"     // and only when the invocation that prepared it is certainly dead (F8)
	RuleInbox     Rule = "inbox"     // entries are consumed in order, once each, as what they are; no accepted work is passed over
	RuleCounters  Rule = "counters"  // attempts, turns and tool calls are what the records say, within their limits
	RuleSequence  Rule = "sequence"  // every record is one that may follow the records before it
	RuleHead      Rule = "head"      // the head follows from the log
	RuleIdle      Rule = "idle"      // a lane is idle only when nothing is open or queued, and rests only when all is read and handed over (I4, I8)
	RuleDue       Rule = "due"       // a lane that is not idle has a due time (I9)
	RuleRow       Rule = "row"       // the ledger rows follow from the log
)

// Violation is one thing that does not hold.
type Violation struct {
	Rule Rule
	Slot uint64 // of the batch that shows it; 0 when the log does not
	Text string
}

// Evidence is everything a store holds about one conversation.
type Evidence struct {
	Tenant, Conversation string
	Log                  []record.Sealed // from slot 1
	Ledger               Ledger
}

// CheckConversation says what does not hold in a conversation: nothing when all is well. It
// is a pure function of what is stored, and apart from RuleSequence it trusts
// no other code with what the records mean.
func CheckConversation(e Evidence) []Violation {
	c := NewChecker(e.Tenant, e.Conversation)
	for _, s := range e.Log {
		if !c.Batch(s) {
			return c.Violations()
		}
	}
	c.Ledger(e.Ledger)
	return c.Violations()
}

// Checker is CheckConversation for a log that is read batch by batch.
type Checker struct {
	tenant, conversation string
	found                []Violation
	state                *State // the fold beside it

	batches    uint64 // that hold
	digest     string // of the last of them
	epoch      uint64
	attempt    string
	boot       string
	until      time.Time // when that attempt's invocation ends
	batchIDs   map[string]bool
	attempts   map[string]bool
	operations map[string]string // whose call an operation id belongs to
	cursor     uint64
	drained    []drained
	entered    []string // submissions, in log order
	waiting    []string // those of them that have not started
	runs       map[string]*seenRun
	open       string // the open run
	terminals  []terminal
	hosted     []terminal           // of submissions that joined a run, as their rows tell
	calls      map[string]*seenCall // of the last response
}

// NewChecker begins with an empty log.
func NewChecker(tenant, conversation string) *Checker {
	return &Checker{tenant: tenant, conversation: conversation, state: &State{}, batchIDs: map[string]bool{}, attempts: map[string]bool{},
		operations: map[string]string{}, runs: map[string]*seenRun{}}
}

// Batch checks the next batch. False means that nothing behind it, and no head
// or row, can be judged.
func (c *Checker) Batch(s record.Sealed) bool {
	b, err := record.Open(s, c.tenant, c.conversation)
	if err != nil {
		c.report(RuleDamaged, s.Slot, "%v", err)
		return false
	}
	before := len(c.found)
	if !c.envelope(b) {
		return false
	}
	env := Envelope{Slot: b.Slot, Epoch: b.Epoch, Attempt: b.Attempt, At: b.At}
	for i, r := range b.Records {
		c.record(env, i, r)
		if err := Reduce(c.state, env, r); err != nil {
			if len(c.found) == before {
				c.report(RuleSequence, b.Slot, "slot %d record %d (%s): %v", b.Slot, i, r.Kind(), err)
			}
			return false
		}
	}
	c.state.Slot, c.state.Digest = b.Slot, b.Digest
	c.batches, c.digest = b.Slot, b.Digest
	return true
}

// Good is the number of batches that hold and the digest of the last of them.
func (c *Checker) Good() (batches uint64, digest string) { return c.batches, c.digest }

// Cursor is the inbox slot up to which the log has consumed entries.
func (c *Checker) Cursor() uint64 { return c.cursor }

// Submissions lists those whose rows Ledger wants to see: in log order, then
// those of the entries that the log has not consumed.
func (c *Checker) Submissions(inbox []InboxSlot) []string {
	ids := append([]string(nil), c.entered...)
	for _, e := range inbox {
		if e.Kind == entrySubmit && e.Slot > c.cursor && c.runs[e.Ref] == nil {
			ids = append(ids, e.Ref)
		}
	}
	return ids
}

// Violations lists what was found so far, in the order of the log.
func (c *Checker) Violations() []Violation { return c.found }

func (c *Checker) report(rule Rule, slot uint64, format string, args ...any) {
	c.found = append(c.found, Violation{Rule: rule, Slot: slot, Text: fmt.Sprintf(format, args...)})
}
