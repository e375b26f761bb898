package core

import (
	"slices"
	"time"

	"github.com/layover-run/layover/core/record"
)

// MaxWaiting is how many commands of one sort may wait for a conversation, and
// how many submissions (D-24). Who writes to the inbox keeps to it; it is soft,
// because many can write at once.
const MaxWaiting = 64

// Drain says how many waiting commands one seam takes in.
type Drain string

// The drain policies (STR-05).
const (
	DrainOne Drain = "one"
	DrainAll Drain = "all"
)

// Steering is a command that waits for a seam of its submission's run.
type Steering struct {
	Entry               uint64 // its inbox slot
	Submission, Key, By string
	Text                record.Value
	At                  time.Time
}

// drainSteering takes a command in: it waits for the run of its submission, or
// is answered at once when no request of that run can come any more (D-23).
func (p *planner) drainSteering(e InboxEntry, cmd Steer) {
	target := cmd.Submission
	if r := p.s.Run; r != nil && slices.Contains(r.Joined, target) {
		target = r.ID
	}
	if p.s.queued(target) < 0 && (p.s.Run == nil || p.s.Run.ID != target) {
		p.emit(record.SteeringDropped{Entry: e.Slot, By: e.By, Reason: "the run has ended", Submission: target, Key: cmd.Key})
		return
	}
	p.emit(record.SteeringQueued{Entry: e.Slot, Submission: target, Key: cmd.Key, By: e.By, Text: cmd.Text, At: record.Time(e.At)})
}

// steer puts waiting steering in front of the next request: under DrainOne one
// command between two responses, else all there are. A request that is being
// prepared, or that was asked already, stays as it is (RUN-014).
func (p *planner) steer() {
	if p.d.prepared != nil || p.d.pending["prepare"] || p.d.pending["model"] {
		return
	}
	for _, s := range p.s.steering(p.s.Run.ID) {
		if p.s.Run.Steered > 0 && p.spec.Policy.Drain != DrainAll {
			return
		}
		p.step("16 steering")
		p.emit(record.SteeringApplied{By: s.By, Queued: s.Entry})
	}
}

// dropSteering answers what still waits for a run that ends.
func (p *planner) dropSteering(run, reason string) {
	for _, s := range p.s.steering(run) {
		p.emit(record.SteeringDropped{By: s.By, Queued: s.Entry, Reason: reason})
	}
}

// goesOn takes a final answer that is not the end: steering waits, or else a
// follow-up does, and a turn is left for it (STR-04). The response is recorded
// as any other, and the run is at its next seam.
func (p *planner) goesOn() bool {
	r := p.s.Run
	if r.Turn+1 >= r.MaxTurns {
		return false
	}
	steered := len(p.s.steering(r.ID)) > 0
	joining := p.joining()
	if !steered && len(joining) == 0 {
		return false
	}
	p.record("")
	p.d.seam = p.s.Run.Turn // the look before an end is the look of this seam
	if !steered {
		for _, q := range joining {
			p.emit(record.FollowUpApplied{Submission: q.ID, Text: q.Input})
		}
	}
	return true
}

// joining lists the follow-ups the run takes in now, in order. Only those of
// its own agent and principal join: others get a run of their own, as does one
// that is aborted before.
func (p *planner) joining() []Submission {
	var out []Submission
	for _, q := range p.s.Queue {
		if !q.FollowUp || q.Agent != p.s.Run.Agent || q.Principal != p.s.Run.Principal || p.s.abortOf(q.ID) != nil {
			continue
		}
		if out = append(out, q); p.spec.Policy.Drain != DrainAll {
			break
		}
	}
	return out
}

// steering lists the commands that wait for a submission, in inbox order.
func (s *State) steering(submission string) []Steering {
	var out []Steering
	for _, c := range s.Steering {
		if c.Submission == submission {
			out = append(out, c)
		}
	}
	return out
}

func (s *State) steeringQueued(r record.SteeringQueued) error {
	if s.queued(r.Submission) < 0 && (s.Run == nil || s.Run.ID != r.Submission) {
		return illegal("steering for %s, which neither runs nor waits", r.Submission)
	}
	s.Steering = append(s.Steering, Steering{Entry: r.Entry, Submission: r.Submission, Key: r.Key, By: r.By, Text: r.Text, At: r.At})
	return nil
}

func (s *State) steeringDropped(r record.SteeringDropped) error {
	if r.Queued == 0 {
		return nil // straight from the inbox
	}
	i := slices.IndexFunc(s.Steering, func(c Steering) bool { return c.Entry == r.Queued })
	if i < 0 {
		return illegal("steering %d is not queued", r.Queued)
	}
	s.Steering = slices.Delete(s.Steering, i, i+1)
	return nil
}

func (r *Run) steeringApplied(s *State, rec record.SteeringApplied) error {
	waiting := s.steering(r.ID)
	switch {
	case len(r.Calls) > 0:
		return illegal("steering while calls are open")
	case len(waiting) == 0 || waiting[0].Entry != rec.Queued:
		return illegal("steering %d is not the next", rec.Queued)
	}
	s.Steering = slices.DeleteFunc(s.Steering, func(c Steering) bool { return c.Entry == rec.Queued })
	s.History = append(s.History, Entry{Run: r.ID, Message: userMessage(waiting[0].Text)})
	r.Steered++
	return nil
}

func (r *Run) followUpApplied(s *State, rec record.FollowUpApplied) error {
	i := s.queued(rec.Submission)
	switch {
	case len(r.Calls) > 0 || !r.Prefixed:
		return illegal("a follow-up where the run was not about to end")
	case i < 0 || !s.Queue[i].FollowUp:
		return illegal("submission %s is no queued follow-up", rec.Submission)
	}
	s.Queue = slices.Delete(s.Queue, i, i+1)
	for k := range s.Steering { // what was for the follow-up is for its host now
		if s.Steering[k].Submission == rec.Submission {
			s.Steering[k].Submission = r.ID
		}
	}
	s.History = append(s.History, Entry{Run: r.ID, Message: userMessage(rec.Text)})
	r.Joined = append(r.Joined, rec.Submission)
	return nil
}

// userMessage shows a value to the model as its user's words: a string as it
// is, any other value as its JSON once its payload is in hand.
func userMessage(text record.Value) record.Message {
	return record.Message{Role: record.User, Parts: record.Parts{record.TextPart{Text: text}}}
}

// Outcomes are the rows that settle with a terminal record: first the run's own,
// then those of the follow-ups that joined it, which end as it does, name it as
// their host and hold no numbers of their own (D-50).
func Outcomes(s record.RunSettled) []record.RunSettled {
	all := []record.RunSettled{s}
	for _, id := range s.Joined {
		joined := s
		joined.Run, joined.Host, joined.Joined, joined.Queued = id, s.Run, nil, nil
		joined.Usage, joined.Attempts, joined.Turns = record.Usage{}, 0, 0
		all = append(all, joined)
	}
	return all
}
