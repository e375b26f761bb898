package ddbjournal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/layover-run/layover/core/failpoint"
)

// API is every call this package makes. Each write is of one item: there is no
// transaction and no batch write, so no conflict between transactions either.
// *dynamodb.Client implements it.
type API interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	Query(context.Context, *dynamodb.QueryInput, ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error)
	BatchGetItem(context.Context, *dynamodb.BatchGetItemInput, ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error)
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
}

// point is the pair of failpoints around one kind of write.
type point struct{ before, after failpoint.Point }

func newPoint(write string) point {
	return point{failpoint.New("ddb." + write + ".before"), failpoint.New("ddb." + write + ".after")}
}

// resolveTime bounds the look after a write whose answer was lost. The look
// runs on a context of its own: the usual reason for a lost answer is a
// context that is ending.
const resolveTime = 3 * time.Second

func resolving(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), resolveTime)
}

// get reads an item, strongly consistent; nil if there is none.
func (j *Journal) get(ctx context.Context, k key) (item, error) {
	if err := k.fits(); err != nil {
		return nil, err
	}
	out, err := j.api.GetItem(ctx, &dynamodb.GetItemInput{TableName: &j.cfg.Table, Key: k.attributes(), ConsistentRead: aws.Bool(true)})
	if err != nil {
		return nil, unanswered(ctx, err)
	}
	return out.Item, nil
}

// put writes an item where none is. An occupant means that something is there,
// be it this very write, whose answer was lost (the SDK's own retry then sees
// a failed condition): the caller tells by what it wrote. An error is unclear.
func (j *Journal) put(ctx context.Context, p point, it item) (occupant item, err error) {
	if err := it.fits(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p.before.Hit()
	_, err = j.api.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: &j.cfg.Table, Item: it, ConditionExpression: aws.String("attribute_not_exists(" + AttrPartition + ")"),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if err == nil {
		p.after.Hit()
		return nil, nil
	}
	if old, failed := conditionFailed(err); failed && old != nil {
		return old, nil
	}
	look, cancel := resolving(ctx)
	defer cancel()
	occupant, lookErr := j.get(look, it.key())
	if lookErr != nil || occupant == nil {
		return nil, unanswered(ctx, err)
	}
	return occupant, nil
}

// change is a conditional update of one item.
type change struct {
	key         key
	set, remove []string
	when        []string
	values      item
	names       map[string]string
}

func newChange(k key) *change {
	c := &change{key: k, values: item{}, names: map[string]string{}}
	return c
}

// name makes an attribute usable in an expression, whatever word it is.
func (c *change) name(attr string) string {
	c.names["#"+attr] = attr
	return "#" + attr
}

// value makes a value usable in an expression.
func (c *change) value(name string, v types.AttributeValue) string {
	c.values[":"+name] = v
	return ":" + name
}

func (c *change) to(attr string, v types.AttributeValue) {
	c.set = append(c.set, c.name(attr)+" = "+c.value("to_"+attr, v))
}

func (c *change) toText(attr, s string) {
	if s == "" {
		c.drop(attr)
		return
	}
	c.to(attr, text(s))
}

// start sets an attribute that is not there yet.
func (c *change) start(attr string, v types.AttributeValue) {
	c.set = append(c.set, fmt.Sprintf("%[1]s = if_not_exists(%[1]s, %[2]s)", c.name(attr), c.value("to_"+attr, v)))
}

// next adds one; an attribute that is not there counts as zero.
func (c *change) next(attr string) {
	c.set = append(c.set, fmt.Sprintf("%[1]s = if_not_exists(%[1]s, %[2]s) + %[3]s", c.name(attr),
		c.value("zero", number(0)), c.value("one", number(1))))
}

func (c *change) drop(attr string) { c.remove = append(c.remove, c.name(attr)) }

// where adds a condition; all of them have to hold.
func (c *change) where(condition string) { c.when = append(c.when, condition) }

// is is the condition that an attribute has a value.
func (c *change) is(attr string, v types.AttributeValue) string {
	return c.name(attr) + " = " + c.value("is_"+attr, v)
}

// same is the condition that an attribute is as it was read.
func (c *change) same(attr string, v types.AttributeValue) string {
	if v == nil {
		return "attribute_not_exists(" + c.name(attr) + ")"
	}
	return c.is(attr, v)
}

// known is the condition that the item is one this build reads: of its format,
// of this owner, and with the attributes it must have. It holds a change back
// even where nothing was read before.
func (c *change) known(owner string, needed ...string) string {
	all := []string{c.is(attrVersion, number(formatVersion)), c.is(attrOf, text(owner))}
	for _, attr := range needed {
		all = append(all, "attribute_exists("+c.name(attr)+")")
	}
	return strings.Join(all, " AND ")
}

func (c *change) expression() string {
	out := "SET " + strings.Join(c.set, ", ")
	if len(c.remove) > 0 {
		out += " REMOVE " + strings.Join(c.remove, ", ")
	}
	return out
}

// updated is what became of a change. Without error it either took effect and
// now is the item after it, or its condition failed and now is the item as it
// is, nil if there is none. An error is unclear; now is then what a look saw
// afterwards, nil if it saw nothing.
type updated struct {
	done bool
	now  item
	err  error
}

func (j *Journal) update(ctx context.Context, p point, c *change) updated {
	if err := c.fits(); err != nil {
		return updated{err: err}
	}
	if err := ctx.Err(); err != nil {
		return updated{err: err}
	}
	p.before.Hit()
	out, err := j.api.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &j.cfg.Table, Key: c.key.attributes(),
		UpdateExpression: aws.String(c.expression()), ConditionExpression: aws.String(strings.Join(c.when, " AND ")),
		ExpressionAttributeNames: c.names, ExpressionAttributeValues: c.values,
		ReturnValues: types.ReturnValueAllNew, ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if err == nil {
		p.after.Hit()
		return updated{done: true, now: out.Attributes}
	}
	old, failed := conditionFailed(err)
	if failed && old != nil {
		return updated{now: old}
	}
	look, cancel := resolving(ctx)
	defer cancel()
	now, lookErr := j.get(look, c.key)
	switch {
	case lookErr != nil:
		return updated{err: unanswered(ctx, err)}
	case failed:
		return updated{now: now}
	}
	return updated{now: now, err: unanswered(ctx, err)}
}

// fits checks what the change writes as if it were an item of its own.
func (c *change) fits() error {
	it := c.key.attributes()
	maps.Copy(it, c.values)
	return it.fits()
}

func conditionFailed(err error) (old item, failed bool) {
	var e *types.ConditionalCheckFailedException
	if errors.As(err, &e) {
		return e.Item, true
	}
	return nil, false
}

// query yields the items of a partition from a sort key on, strongly
// consistent, page by page until the store says there are no more: a page may
// be short or empty and still have a successor.
func (j *Journal) query(ctx context.Context, from key, each func(item) error) error {
	if err := from.fits(); err != nil {
		return err
	}
	in := &dynamodb.QueryInput{
		TableName: &j.cfg.Table, ConsistentRead: aws.Bool(true),
		KeyConditionExpression:    aws.String(AttrPartition + " = :pk AND " + AttrSort + " >= :from"),
		ExpressionAttributeValues: item{":pk": text(from.partition), ":from": text(from.sort)},
	}
	for {
		out, err := j.api.Query(ctx, in)
		if err != nil {
			return unanswered(ctx, err)
		}
		for _, it := range out.Items {
			if err := each(it); err != nil {
				return err
			}
		}
		if len(out.LastEvaluatedKey) == 0 {
			return nil
		}
		in.ExclusiveStartKey = out.LastEvaluatedKey
	}
}

// last reads the item with the highest sort key of a partition, nil if none.
func (j *Journal) last(ctx context.Context, partition string) (item, error) {
	if err := (key{partition: partition}).fits(); err != nil {
		return nil, err
	}
	in := &dynamodb.QueryInput{
		TableName: &j.cfg.Table, ConsistentRead: aws.Bool(true), ScanIndexForward: aws.Bool(false), Limit: aws.Int32(1),
		KeyConditionExpression: aws.String(AttrPartition + " = :pk"), ExpressionAttributeValues: item{":pk": text(partition)},
	}
	for {
		out, err := j.api.Query(ctx, in)
		if err != nil {
			return nil, unanswered(ctx, err)
		}
		if len(out.Items) > 0 {
			return out.Items[0], nil
		}
		if len(out.LastEvaluatedKey) == 0 {
			return nil, nil
		}
		in.ExclusiveStartKey = out.LastEvaluatedKey
	}
}
