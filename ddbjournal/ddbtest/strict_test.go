package ddbtest

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// Each rule of Strict refuses what breaks it, and nothing else about the same
// request.
func TestStrictRefuses(t *testing.T) {
	for want, request := range map[string]any{
		"the key has 1 attributes":     &dynamodb.GetItemInput{Key: attributes{"pk": stringOf("a")}},
		"sk is no text of 1":           &dynamodb.GetItemInput{Key: attributes{"pk": stringOf("a"), "sk": stringOf("")}},
		"pk is no text of 1 to 2048":   &dynamodb.GetItemInput{Key: goodKey(strings.Repeat("k", 2049))},
		"contains duplicates":          getting("a", "b", "a"),
		"101 items":                    getting(strings.Split(strings.Repeat("x", 101), "")...),
		"0 items":                      getting(),
		"is no number":                 putting("dueAt", stringOf("1")),
		"dueShard is no text":          putting("dueShard", stringOf("")),
		"no time to live in seconds":   putting("ttl", numberOf("1772366400000")),
		"an item of 409601 bytes":      putting("body", &types.AttributeValueMemberB{Value: make([]byte, 400<<10-len("pkasksbody")+1)}),
		"at most 38 digits":            putting("n", numberOf(strings.Repeat("1", 39))),
		"x is no UTF-8":                putting("x", stringOf("\xff")),
		"x has no bytes":               putting("x", &types.AttributeValueMemberB{}),
		"no use for":                   putting("x", &types.AttributeValueMemberNULL{Value: true}),
		"state is not given, or needs": changing("SET #a = :a", "state = :a"),
		"#b is not given":              changing("SET #b = :a", ""),
		":a is given and not used":     changing("SET #a = #a", ""),
		"redundant parentheses":        changing("SET #a = :a", "((#a = :a))"),
		"an expression of 5000 bytes":  changing("SET #a = :a"+strings.Repeat(" ", 5000-len("SET #a = :a")), ""),
		"a is changed twice":           changing("SET #a = :a REMOVE #a", ""),
		"pk is changed twice, or is":   &dynamodb.UpdateItemInput{Key: goodKey("a"), UpdateExpression: aws.String("REMOVE #pk"), ExpressionAttributeNames: map[string]string{"#pk": "pk"}},
		"an empty list of names":       &dynamodb.UpdateItemInput{Key: goodKey("a"), UpdateExpression: aws.String("REMOVE dueAt"), ExpressionAttributeNames: map[string]string{}},
		"consistent reads":             querying(func(in *dynamodb.QueryInput) { in.ConsistentRead = aws.Bool(true) }),
		"a limit of 0":                 querying(func(in *dynamodb.QueryInput) { in.Limit = aws.Int32(0) }),
		"no condition that the":        querying(func(in *dynamodb.QueryInput) { in.KeyConditionExpression = aws.String("dueAt <= :s") }),
		"the exclusive start key":      querying(func(in *dynamodb.QueryInput) { in.ExclusiveStartKey = goodKey("a") }),
		"a key of no or too many":      querying(func(in *dynamodb.QueryInput) { in.ExpressionAttributeValues[":s"] = stringOf("") }),
	} {
		if why := refused(request); !strings.Contains(why, want) {
			t.Errorf("refused for %q, want %q", why, want)
		}
	}
	for _, request := range []any{
		&dynamodb.GetItemInput{Key: goodKey("a")}, getting("a", "b"), putting("ttl", numberOf("1772366400")),
		putting("body", &types.AttributeValueMemberB{Value: make([]byte, 400<<10-len("pkasksbody"))}),
		changing("SET #a = :a", "attribute_exists(#a)"), querying(func(*dynamodb.QueryInput) {}),
	} {
		if why := refused(request); why != "" {
			t.Errorf("a request that is right is refused: %s", why)
		}
	}
}

func goodKey(pk string) attributes { return attributes{"pk": stringOf(pk), "sk": stringOf("s")} }

func getting(partitions ...string) *dynamodb.BatchGetItemInput {
	var keys types.KeysAndAttributes
	for n, pk := range partitions {
		if len(partitions) > 100 {
			pk += strings.Repeat("x", n)
		}
		keys.Keys = append(keys.Keys, goodKey(pk))
	}
	return &dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{"t": keys}}
}

func putting(name string, v types.AttributeValue) *dynamodb.PutItemInput {
	it := goodKey("a")
	it[name] = v
	return &dynamodb.PutItemInput{Item: it}
}

func changing(change, condition string) *dynamodb.UpdateItemInput {
	in := &dynamodb.UpdateItemInput{Key: goodKey("a"), UpdateExpression: &change,
		ExpressionAttributeNames: map[string]string{"#a": "a"}, ExpressionAttributeValues: attributes{":a": stringOf("x")}}
	if condition != "" {
		in.ConditionExpression = &condition
	}
	return in
}

func querying(change func(*dynamodb.QueryInput)) *dynamodb.QueryInput {
	in := &dynamodb.QueryInput{IndexName: aws.String("due"), KeyConditionExpression: aws.String("dueShard = :s"),
		ExpressionAttributeValues: attributes{":s": stringOf("00")}}
	change(in)
	return in
}

func stringOf(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
func numberOf(s string) types.AttributeValue { return &types.AttributeValueMemberN{Value: s} }
