package ddbjournal_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/core/journal/journaltest"
	"github.com/layover-run/layover/ddbjournal"
	"github.com/layover-run/layover/localstack/peers"
)

// The whole certification, with the SDK's own retries as functions have them:
// a write whose answer was lost is tried again by the SDK and finds itself.
func TestJournal(t *testing.T) { certify(t, 3, false) }

// The same without the SDK's retries, so that a lost answer is an error here,
// and with an index that is late: it shows nothing the first time it is asked.
func TestJournalWithoutRetries(t *testing.T) { certify(t, 1, true) }

// indexLag is how far the index of the store under test may be behind.
const indexLag = 10 * time.Second

// bench is one journal under test with what lies below it.
type bench struct {
	net    *network
	client *dynamodb.Client
	table  string
}

func newBench(t testing.TB, attempts int, more ...func(*dynamodb.Options)) bench {
	t.Helper()
	b := bench{net: newNetwork()}
	b.client = client(t, b.net, attempts, more...)
	b.table = newTable(t, b.client)
	return b
}

func certify(t *testing.T, attempts int, late bool) {
	peers.DynamoDB(t)
	var benches sync.Map // of a journal
	over := func(t *testing.T, b bench) journal.Journal {
		j := openOn(t, b.client, b.table)
		benches.Store(j, b)
		return j
	}
	of := func(j journal.Journal) bench {
		b, _ := benches.Load(j)
		return b.(bench)
	}
	open := func(t *testing.T) journal.Journal {
		b := newBench(t, attempts)
		if late {
			b.delayIndex()
		}
		return over(t, b)
	}
	result := journaltest.Run(t, open, journaltest.WithLag(indexLag),
		journaltest.WithFaults(func(j journal.Journal, f journaltest.Fault) { of(j).net.setAround(f) }),
		journaltest.WithDamage(func(t *testing.T, j journal.Journal, d journaltest.Damage) (journal.Journal, string) {
			damage(t, of(j), d)
			return over(t, of(j)), ""
		}, func(t *testing.T, j journal.Journal) string { return of(j).dump(t) }))
	if len(result.NotExercised) > 0 {
		t.Errorf("not exercised: %v", result.NotExercised)
	}
}

// places are the keys of what journaltest damages, for a tenant: the format of
// the keys as it lies in tables.
var places = map[journaltest.Stored][2]string{
	journaltest.StoredHead:    {"#H#c1", "H"},
	journaltest.StoredEntry:   {"#I#c1", "00000000000000000002"},
	journaltest.StoredBatch:   {"#L#c1", "00000000000000000002"},
	journaltest.StoredRow:     {"#S#s1", "S"},
	journaltest.StoredPayload: {"#B#", "000001"},
}

func damage(t *testing.T, b bench, d journaltest.Damage) {
	t.Helper()
	at := func(tenant string) map[string]types.AttributeValue {
		pk, sk := tenant+places[d.What][0], places[d.What][1]
		if d.What == journaltest.StoredPayload {
			pk += digestOf(journaltest.DamagedPayload)
		}
		if d.What == journaltest.StoredEntry && d.How == journaltest.Missing {
			sk = "00000000000000000001"
		}
		return map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: pk}, "sk": &types.AttributeValueMemberS{Value: sk}}
	}
	key, from := at("acme"), at("acme")
	if d.How == journaltest.Foreign {
		from = at("globex")
	}
	it := b.get(t, from)
	body, _ := it[map[journaltest.Stored]string{journaltest.StoredRow: "input"}[d.What]].(*types.AttributeValueMemberB)
	if body == nil {
		body, _ = it["body"].(*types.AttributeValueMemberB)
	}
	switch {
	case d.How == journaltest.Missing:
		if _, err := b.client.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{TableName: &b.table, Key: key}); err != nil {
			t.Fatal(err)
		}
		return
	case d.How == journaltest.Foreign:
		it["pk"], it["sk"] = key["pk"], key["sk"]
	case d.How == journaltest.Future:
		it["v"] = &types.AttributeValueMemberN{Value: "2"}
	case d.What == journaltest.StoredHead && d.How == journaltest.Flipped:
		it["state"] = &types.AttributeValueMemberS{Value: "sunning"}
	case d.What == journaltest.StoredHead:
		delete(it, "settled")
	case d.How == journaltest.Flipped:
		body.Value[len(body.Value)/2] ^= 1
	default:
		body.Value = body.Value[:len(body.Value)-1]
	}
	if _, err := b.client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &b.table, Item: it}); err != nil {
		t.Fatal(err)
	}
}

func (b bench) get(t *testing.T, key map[string]types.AttributeValue) map[string]types.AttributeValue {
	t.Helper()
	out, err := b.client.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: &b.table, Key: key, ConsistentRead: aws.Bool(true)})
	if err != nil {
		t.Fatal(err)
	}
	if out.Item == nil {
		t.Fatalf("nothing is stored at %v", key)
	}
	return out.Item
}

// scan reads the whole table.
func (b bench) scan(t *testing.T) (items []map[string]types.AttributeValue) {
	t.Helper()
	pages := dynamodb.NewScanPaginator(b.client, &dynamodb.ScanInput{TableName: &b.table, ConsistentRead: aws.Bool(true)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, page.Items...)
	}
	return items
}

func (b bench) dump(t *testing.T) string {
	t.Helper()
	var lines []string
	for _, it := range b.scan(t) {
		line, err := json.Marshal(it)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(line[:min(len(line), 300)])+" "+digestOf(line))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

var _ ddbjournal.API = (*dynamodb.Client)(nil)
