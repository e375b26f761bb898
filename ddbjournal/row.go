package ddbjournal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

// row is a submission's ledger row as stored.
type row struct {
	it             item
	sub            journal.Submission // without what lies aside
	nonce          string
	aside, outcome *record.Ref // an input or an outcome that lies in chunks
}

// The attributes beside a body that lies aside.
const suffixRef = "Ref"

// newRow is the row of a new submission.
func newRow(s journal.Submission, now time.Time, tail uint64) (row, error) {
	if s.AdmittedAt.IsZero() {
		s.AdmittedAt = now
	}
	s.AdmittedAt, s.Tail = record.Time(s.AdmittedAt), tail
	s.Input, s.Outcome, s.SettledAt = slices.Clone(s.Input), nil, time.Time{}
	r := row{sub: s, nonce: nonce(), it: newItem(rowKey(s.Lane.Tenant, s.ID), ownerOf(s.Lane.Tenant, s.ID))}
	r.it[attrNonce], r.it[attrTail], r.it[attrConversation] = text(r.nonce), number(tail), text(escape(s.Lane.Conversation))
	r.it.setText(attrKey, s.Key)
	r.it.setText(attrDigest, s.Digest)
	r.it.setText(attrAgent, s.Agent)
	r.it.setText(attrPrincipal, s.Principal)
	r.it.setText(attrReplyTo, s.ReplyTo)
	r.it.setTime(attrAdmittedAt, s.AdmittedAt)
	if s.Allowance != (record.Allowance{}) {
		if err := r.it.setJSON(attrAllowance, s.Allowance); err != nil {
			return row{}, err
		}
	}
	if s.Parent != (record.ParentLink{}) {
		if err := r.it.setJSON(attrParent, s.Parent); err != nil {
			return row{}, err
		}
	}
	r.aside = r.it.setLarge(attrInput, s.Input)
	return r, nil
}

// setLarge is setBody; a body that stays large even so is to be stored aside,
// and the item refers to it.
func (it item) setLarge(name string, body []byte) *record.Ref {
	if len(body) <= plainLimit {
		it.setBody(name, body)
		if stored, _ := it[name].(*types.AttributeValueMemberB); stored == nil || len(stored.Value) <= inlineLimit {
			return nil
		}
		for _, attr := range []string{name, name + suffixEncoding, name + suffixSize} {
			delete(it, attr)
		}
	}
	ref := record.Ref{SHA256: record.Digest(body), Size: len(body)}
	it[name+suffixRef], it[name+suffixSize] = text(ref.SHA256), number(uint64(ref.Size))
	return &ref
}

// ref is what setLarge stored aside, if it did.
func (f *fields) ref(name string) *record.Ref {
	if digest := f.text(name + suffixRef); digest != "" {
		return &record.Ref{SHA256: digest, Size: int(f.number(name + suffixSize))}
	}
	return nil
}

func rowOf(it item, tenant, id string) (row, error) {
	f, err := it.open(ownerOf(tenant, id))
	if err != nil {
		return row{}, err
	}
	if f.has(attrWithdrew) {
		return row{}, fmt.Errorf("%w: submission %s", journal.ErrTombstone, id)
	}
	f.need(attrConversation, attrTail, attrAdmittedAt)
	conversation, err := unescape(f.text(attrConversation))
	if err != nil {
		return row{}, err
	}
	r := row{it: it, nonce: f.text(attrNonce), sub: journal.Submission{
		Lane: journal.Lane{Tenant: tenant, Conversation: conversation}, ID: id, Key: f.text(attrKey), Digest: f.text(attrDigest),
		Agent: f.text(attrAgent), Principal: f.text(attrPrincipal), ReplyTo: f.text(attrReplyTo), AdmittedAt: f.time(attrAdmittedAt),
		Tail: f.number(attrTail), SettledAt: f.time(attrSettledAt),
	}}
	f.json(attrAllowance, &r.sub.Allowance)
	f.json(attrParent, &r.sub.Parent)
	if r.aside = f.ref(attrInput); r.aside == nil {
		r.sub.Input = f.body(attrInput)
	}
	if r.outcome = f.ref(attrOutcome); r.outcome == nil && f.has(attrOutcome) {
		r.sub.Outcome = new(record.RunSettled)
		f.json(attrOutcome, r.sub.Outcome)
	}
	return r, f.err
}

// complete is the submission with what lies aside.
func (j *Journal) complete(ctx context.Context, r row) (journal.Submission, error) {
	s := r.sub
	if r.aside != nil {
		body, err := j.payload(ctx, s.Lane.Tenant, r.aside.SHA256)
		if err != nil {
			return journal.Submission{}, promised(err)
		}
		s.Input = body
	}
	if r.outcome != nil {
		body, err := j.payload(ctx, s.Lane.Tenant, r.outcome.SHA256)
		if err != nil {
			return journal.Submission{}, promised(err)
		}
		s.Outcome = new(record.RunSettled)
		if err := json.Unmarshal(body, s.Outcome); err != nil {
			return journal.Submission{}, fmt.Errorf("%w: outcome of %s: %w", record.ErrCorrupt, s.ID, err)
		}
	}
	return s, nil
}

// promised turns a missing payload into damage: the row says it is there.
func promised(err error) error {
	if errors.Is(err, journal.ErrNotFound) {
		return fmt.Errorf("%w: what the row refers to is missing", record.ErrCorrupt)
	}
	return err
}

// Submission implements journal.Journal.
func (j *Journal) Submission(ctx context.Context, tenant, id string) (journal.Submission, error) {
	s, err := j.submission(ctx, tenant, id)
	return s, failedKey("submission", tenant, id, err)
}

func (j *Journal) submission(ctx context.Context, tenant, id string) (journal.Submission, error) {
	it, err := j.get(ctx, rowKey(tenant, id))
	if err != nil {
		return journal.Submission{}, err
	}
	if it == nil {
		return journal.Submission{}, journal.ErrNotFound
	}
	r, err := rowOf(it, tenant, id)
	if err != nil {
		return journal.Submission{}, err
	}
	return j.complete(ctx, r)
}

func seconds(t time.Time) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(t.Unix(), 10)}
}
