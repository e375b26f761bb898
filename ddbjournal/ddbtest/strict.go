package ddbtest

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"

	"github.com/layover-run/layover/ddbjournal"
)

// Strict makes a client refuse what DynamoDB itself would refuse and a store in
// its place may take, and fails the test: its rules are those of the service's
// developer guide (expressions, reserved words, naming rules, item sizes) and
// of the API reference, as far as this package's five calls go. It stands in
// every client of the tests, so that each request any of them makes is held to
// it, whatever peer answers.
func Strict(t testing.TB) func(*dynamodb.Options) {
	check := middleware.InitializeMiddlewareFunc("strict", func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
		if why := refused(in.Parameters); why != "" {
			t.Errorf("DynamoDB would refuse this %T: %s", in.Parameters, why)
			return middleware.InitializeOutput{}, middleware.Metadata{}, &smithy.GenericAPIError{Code: "ValidationException", Message: why}
		}
		return next.HandleInitialize(ctx, in)
	})
	return func(o *dynamodb.Options) {
		o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error { return stack.Initialize.Add(check, middleware.Before) })
	}
}

type attributes = map[string]types.AttributeValue

// refused says why the service would not take a request; empty if it would.
func refused(request any) string {
	switch r := request.(type) {
	case *dynamodb.GetItemInput:
		return badKey(r.Key)
	case *dynamodb.BatchGetItemInput:
		return badBatch(r.RequestItems)
	case *dynamodb.PutItemInput:
		return first(badItem(r.Item), badExpressions(r.ExpressionAttributeNames, r.ExpressionAttributeValues, r.ConditionExpression))
	case *dynamodb.UpdateItemInput:
		return badUpdate(r)
	case *dynamodb.QueryInput:
		return badQuery(r)
	}
	return ""
}

func first(reasons ...string) string {
	for _, why := range reasons {
		if why != "" {
			return why
		}
	}
	return ""
}

// badKey holds a key to the table's: two texts, not empty, of bounded length.
func badKey(key attributes) string {
	if len(key) != 2 {
		return fmt.Sprintf("the key has %d attributes", len(key))
	}
	return badKeys(key, map[string]int{ddbjournal.AttrPartition: 2048, ddbjournal.AttrSort: 1024})
}

func badKeys(it attributes, limits map[string]int) string {
	for name, limit := range limits {
		s, is := it[name].(*types.AttributeValueMemberS)
		if !is || s.Value == "" || len(s.Value) > limit {
			return fmt.Sprintf("key attribute %s is no text of 1 to %d bytes", name, limit)
		}
	}
	return ""
}

func badBatch(tables map[string]types.KeysAndAttributes) string {
	total := 0
	for _, t := range tables {
		seen := map[string]bool{}
		for _, k := range t.Keys {
			if why := badKey(k); why != "" {
				return why
			}
			id := k[ddbjournal.AttrPartition].(*types.AttributeValueMemberS).Value + " " + k[ddbjournal.AttrSort].(*types.AttributeValueMemberS).Value
			if seen[id] {
				return "provided list of item keys contains duplicates: " + id
			}
			seen[id] = true
		}
		total += len(t.Keys)
	}
	if total < 1 || total > 100 {
		return fmt.Sprintf("%d items in a batch", total)
	}
	return ""
}

// badItem is badKey for a whole item, with the index's keys where it has them.
func badItem(it attributes) string {
	limits := map[string]int{ddbjournal.AttrPartition: 2048, ddbjournal.AttrSort: 1024}
	if it[ddbjournal.AttrShard] != nil {
		limits[ddbjournal.AttrShard] = 2048
	}
	if due := it[ddbjournal.AttrDue]; due != nil {
		if _, is := due.(*types.AttributeValueMemberN); !is {
			return "the index's sort key is no number"
		}
	}
	if why := first(badKeys(it, limits), badValues(it), badExpiry(it[ddbjournal.AttrExpiry])); why != "" {
		return why
	}
	size := 0
	for name, v := range it {
		size += len(name) + sizeOf(v)
	}
	if size > 400<<10 {
		return fmt.Sprintf("an item of %d bytes", size)
	}
	return ""
}

// sizeOf is a value's share of an item's size.
func sizeOf(v types.AttributeValue) int {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		return len(v.Value)
	case *types.AttributeValueMemberB:
		return len(v.Value)
	case *types.AttributeValueMemberN:
		return (len(strings.Trim(v.Value, "0"))+1)/2 + 1
	}
	return 0
}

var digits38 = regexp.MustCompile(`^-?[0-9]{1,38}$`)

func badValues(values attributes) string {
	for name, v := range values {
		switch v := v.(type) {
		case *types.AttributeValueMemberS:
			if !utf8.ValidString(v.Value) {
				return name + " is no UTF-8"
			}
		case *types.AttributeValueMemberN:
			if !digits38.MatchString(v.Value) {
				return name + " is no whole number of at most 38 digits: " + v.Value
			}
		case *types.AttributeValueMemberB:
			if v.Value == nil {
				return name + " has no bytes"
			}
		default:
			return fmt.Sprintf("%s is a %T, which this package has no use for", name, v)
		}
	}
	return ""
}

// badExpiry tells seconds from milliseconds: an item whose time to live is more
// than some centuries away would never expire.
func badExpiry(v types.AttributeValue) string {
	n, is := v.(*types.AttributeValueMemberN)
	if v != nil && (!is || len(n.Value) > 10) {
		return fmt.Sprintf("%v is no time to live in seconds", v)
	}
	return ""
}

// token is a word of an expression, with its mark.
var token = regexp.MustCompile(`[#:]?[A-Za-z_][A-Za-z0-9_]*`)

// bare are the words that expressions may hold without an alias: the language's
// own, and the four keys. The service's list of reserved words has none of the
// four; any other attribute needs an alias, so that nobody has to look it up.
var bare = strings.Fields(`AND OR IN SET REMOVE attribute_exists attribute_not_exists if_not_exists
	pk sk dueShard dueAt`)

// badExpressions looks at the expressions of one request together: what they
// name has to be given, and all that is given has to be named.
func badExpressions(names map[string]string, values attributes, expressions ...*string) string {
	unused := map[string]bool{}
	for name := range names {
		unused[name] = true
	}
	for value := range values {
		unused[value] = true
	}
	given := maps.Clone(unused)
	for _, e := range expressions {
		if e == nil {
			continue
		}
		switch {
		case *e == "" || len(*e) > 4096:
			return fmt.Sprintf("an expression of %d bytes", len(*e))
		case strings.Contains(*e, "(("):
			return "redundant parentheses: " + *e
		}
		for _, word := range token.FindAllString(*e, -1) {
			marked := word[0] == '#' || word[0] == ':'
			if marked && !given[word] || !marked && !slices.Contains(bare, word) {
				return fmt.Sprintf("%s is not given, or needs an alias: %s", word, *e)
			}
			delete(unused, word)
		}
	}
	for word := range unused {
		return word + " is given and not used"
	}
	if names != nil && len(names) == 0 || values != nil && len(values) == 0 {
		return "an empty list of names or values"
	}
	return badValues(values)
}

var (
	assignment = regexp.MustCompile(`(#\w+) = (?:if_not_exists\(#\w+, )?(:\w+)`)
	removal    = regexp.MustCompile(`REMOVE (.*)$`)
)

func badUpdate(r *dynamodb.UpdateItemInput) string {
	if why := first(badKey(r.Key), badExpressions(r.ExpressionAttributeNames, r.ExpressionAttributeValues, r.UpdateExpression, r.ConditionExpression)); why != "" {
		return why
	}
	after := maps.Clone(r.Key) // what the update alone makes of the item
	changed := map[string]bool{}
	change := func(alias string) string {
		name := r.ExpressionAttributeNames[alias]
		if changed[name] || r.Key[name] != nil {
			return name + " is changed twice, or is a key"
		}
		changed[name] = true
		return ""
	}
	for _, m := range assignment.FindAllStringSubmatch(*r.UpdateExpression, -1) {
		if why := change(m[1]); why != "" {
			return why
		}
		after[r.ExpressionAttributeNames[m[1]]] = r.ExpressionAttributeValues[m[2]]
	}
	if m := removal.FindStringSubmatch(*r.UpdateExpression); m != nil {
		for _, alias := range strings.Split(m[1], ", ") {
			if why := change(alias); why != "" {
				return why
			}
		}
	}
	return badItem(after)
}

func badQuery(r *dynamodb.QueryInput) string {
	hash := ddbjournal.AttrPartition
	start := []string{ddbjournal.AttrPartition, ddbjournal.AttrSort}
	if r.IndexName != nil {
		if r.ConsistentRead != nil && *r.ConsistentRead {
			return "consistent reads are not supported on global secondary indexes"
		}
		hash = ddbjournal.AttrShard
		start = append(start, ddbjournal.AttrShard, ddbjournal.AttrDue)
	}
	switch {
	case r.Limit != nil && *r.Limit < 1:
		return fmt.Sprintf("a limit of %d", *r.Limit)
	case r.KeyConditionExpression == nil || !strings.HasPrefix(*r.KeyConditionExpression, hash+" = :"):
		return "no condition that the partition key has a value"
	case r.ExclusiveStartKey != nil && !slices.Equal(slices.Sorted(maps.Keys(r.ExclusiveStartKey)), slices.Sorted(slices.Values(start))):
		return "the exclusive start key is not one of this index"
	}
	for _, v := range r.ExpressionAttributeValues {
		if s, is := v.(*types.AttributeValueMemberS); is && (s.Value == "" || len(s.Value) > 2048) {
			return "a key of no or too many bytes"
		}
	}
	return badExpressions(r.ExpressionAttributeNames, r.ExpressionAttributeValues, r.KeyConditionExpression)
}
