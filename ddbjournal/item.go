package ddbjournal

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/record"
)

// item is a stored item, attribute by attribute.
type item map[string]types.AttributeValue

// key is where the item lies.
func (it item) key() key {
	f := fields{it: it}
	return key{f.text(AttrPartition), f.text(AttrSort)}
}

func (k key) attributes() item {
	return item{AttrPartition: text(k.partition), AttrSort: text(k.sort)}
}

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func number(n uint64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatUint(n, 10)}
}

// millis stores a time with the precision of every persisted time.
func millis(t time.Time) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(t.UnixMilli(), 10)}
}

// newItem is an item of this build's format that belongs to owner.
func newItem(k key, owner string) item {
	it := k.attributes()
	it[attrVersion], it[attrOf] = number(formatVersion), text(owner)
	return it
}

// ownerOf is what an item of a tenant's thing says it belongs to.
func ownerOf(tenant, name string) string { return escape(tenant) + "#" + escape(name) }

func ofLane(l journal.Lane) string { return ownerOf(l.Tenant, l.Conversation) }

// setText leaves an empty text out.
func (it item) setText(name, s string) {
	if s != "" {
		it[name] = text(s)
	}
}

// setTime leaves the zero time out.
func (it item) setTime(name string, t time.Time) {
	if !t.IsZero() {
		it[name] = millis(t)
	}
}

// compressFrom is the body size, in bytes, from which gzip is worth its time.
const compressFrom = 1 << 10

// The attributes beside a compressed body: how, and how long it was.
const (
	suffixEncoding = "Enc"
	suffixSize     = "Len"
	gzipEncoding   = "gzip"
)

// setBody stores bytes as they are or compressed, which a second attribute
// then names. No bytes are no attribute: the store refuses an empty one.
func (it item) setBody(name string, body []byte) {
	if len(body) == 0 {
		return
	}
	if len(body) >= compressFrom {
		if packed := compress(body); len(packed) < len(body) {
			it[name] = &types.AttributeValueMemberB{Value: packed}
			it[name+suffixEncoding], it[name+suffixSize] = text(gzipEncoding), number(uint64(len(body)))
			return
		}
	}
	it[name] = &types.AttributeValueMemberB{Value: body}
}

func compress(body []byte) []byte {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err == nil {
		_, err = w.Write(body)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic("ddbjournal: gzip to memory: " + err.Error())
	}
	return out.Bytes()
}

func decompress(packed []byte, size uint64) ([]byte, error) {
	if size > plainLimit {
		return nil, fmt.Errorf("%w: a body claims %d bytes, limit %d", record.ErrCorrupt, size, plainLimit)
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", record.ErrCorrupt, err)
	}
	plain, err := io.ReadAll(io.LimitReader(r, int64(size)+1))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", record.ErrCorrupt, err)
	}
	if uint64(len(plain)) != size {
		return nil, fmt.Errorf("%w: a body is longer or shorter than it claims", record.ErrCorrupt)
	}
	return plain, nil
}

// fits refuses, before it is sent, what the store would refuse or change: an
// item over its size limit, a key over its length, a text that is no UTF-8
// (the store would replace the bytes silently).
func (it item) fits() error {
	size := 0
	for name, value := range it {
		size += len(name)
		switch v := value.(type) {
		case *types.AttributeValueMemberS:
			if !utf8.ValidString(v.Value) {
				return fmt.Errorf("attribute %s is not valid UTF-8", name)
			}
			size += len(v.Value)
		case *types.AttributeValueMemberN:
			size += len(v.Value)/2 + 2 // at most: two digits take a byte, and the whole one or two more
		case *types.AttributeValueMemberB:
			size += len(v.Value)
		}
	}
	if size > ItemLimit {
		return fmt.Errorf("%w: an item of %d bytes, the store's limit is %d", record.ErrTooLarge, size, ItemLimit)
	}
	return it.key().fits()
}

// fits refuses a key that the store takes neither to write nor to read by.
func (k key) fits() error {
	if len(k.partition) > keyLimit {
		return fmt.Errorf("%w: a key of %d bytes, the store's limit is %d", record.ErrTooLarge, len(k.partition), keyLimit)
	}
	return nil
}

// fields reads an item. The first attribute that is not what it has to be
// stays as the error; what is absent reads as zero.
type fields struct {
	it  item
	err error
}

// open checks what every item has before anything of it is believed: a format
// version this build knows, and the owner it is looked for under.
func (it item) open(owner string) (*fields, error) {
	f := &fields{it: it}
	switch v := f.number(attrVersion); {
	case f.err != nil:
		return nil, f.err
	case v == 0:
		return nil, fmt.Errorf("%w: an item without a format version", record.ErrCorrupt)
	case v > formatVersion:
		return nil, fmt.Errorf("%w: an item of format %d, this build knows %d", journal.ErrNewer, v, formatVersion)
	}
	if of := f.text(attrOf); f.err == nil && of != owner {
		return nil, fmt.Errorf("%w: an item of %q under the key of %q", record.ErrForeign, of, owner)
	}
	return f, f.err
}

func (f *fields) fail(name, format string, args ...any) {
	if f.err == nil {
		f.err = fmt.Errorf("%w: attribute %s %s", record.ErrCorrupt, name, fmt.Sprintf(format, args...))
	}
}

func (f *fields) has(name string) bool { return f.it[name] != nil }

// need fails when one of the attributes is absent.
func (f *fields) need(names ...string) {
	for _, name := range names {
		if !f.has(name) {
			f.fail(name, "is missing")
		}
	}
}

func (f *fields) text(name string) string {
	switch v := f.it[name].(type) {
	case nil:
		return ""
	case *types.AttributeValueMemberS:
		return v.Value
	}
	f.fail(name, "is no text")
	return ""
}

func (f *fields) bytes(name string) []byte {
	switch v := f.it[name].(type) {
	case nil:
		return nil
	case *types.AttributeValueMemberB:
		return v.Value
	}
	f.fail(name, "holds no bytes")
	return nil
}

func (f *fields) digits(name string) (string, bool) {
	switch v := f.it[name].(type) {
	case nil:
		return "", false
	case *types.AttributeValueMemberN:
		return v.Value, true
	}
	f.fail(name, "is no number")
	return "", false
}

func (f *fields) number(name string) uint64 {
	s, there := f.digits(name)
	if !there {
		return 0
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		f.fail(name, "is %q", s)
	}
	return n
}

func (f *fields) time(name string) time.Time {
	s, there := f.digits(name)
	if !there {
		return time.Time{}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		f.fail(name, "is %q", s)
	}
	return time.UnixMilli(n).UTC()
}

// body is what setBody stored.
func (f *fields) body(name string) []byte {
	stored := f.bytes(name)
	switch encoding := f.text(name + suffixEncoding); encoding {
	case "":
		return stored
	case gzipEncoding:
		plain, err := decompress(stored, f.number(name+suffixSize))
		if err != nil {
			f.fail(name, "does not unpack: %v", err)
		}
		return plain
	default:
		if f.err == nil {
			f.err = fmt.Errorf("%w: body encoding %q", journal.ErrNewer, encoding)
		}
	}
	return nil
}

// json decodes a body into v.
func (f *fields) json(name string, v any) {
	b := f.body(name)
	if f.err != nil || len(b) == 0 {
		return
	}
	if err := json.Unmarshal(b, v); err != nil {
		f.fail(name, "does not decode: %v", err)
	}
}

// setJSON stores v as a body, without HTML escaping so that canonical values
// inside keep their bytes.
func (it item) setJSON(name string, v any) error {
	b, err := encode(v)
	if err != nil {
		return fmt.Errorf("attribute %s: %w", name, err)
	}
	it.setBody(name, b)
	return nil
}

func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, errors.Join(errors.New("does not encode"), err)
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}
