package ddbjournal_test

import (
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/layover-run/layover/core/journal"
	"github.com/layover-run/layover/ddbjournal"
)

// A client set up by ClientOptions gives up on a try that is not answered, and
// leaves an HTTP client of the caller's own alone.
func TestClientOptions(t *testing.T) {
	own := &http.Client{}
	o := dynamodb.Options{HTTPClient: own}
	ddbjournal.ClientOptions(&o)
	if o.HTTPClient != own {
		t.Error("the caller's HTTP client was replaced")
	}
	for _, given := range []dynamodb.HTTPClient{nil, awshttp.NewBuildableClient()} {
		o := dynamodb.Options{HTTPClient: given}
		ddbjournal.ClientOptions(&o)
		if n := o.Retryer.MaxAttempts(); n != 3 {
			t.Errorf("%d tries", n)
		}
		wait := o.HTTPClient.(*awshttp.BuildableClient).GetTransport().ResponseHeaderTimeout
		if wait <= 0 || wait > 10*time.Second {
			t.Errorf("an answer is waited for %s", wait)
		}
	}
}

// A store that accepts and never answers is unclear in the end, though nobody's
// context has ended.
func TestAStoreThatNeverAnswers(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer listener.Close()
	c := dynamodb.New(dynamodb.Options{Region: "us-east-1", BaseEndpoint: aws.String("http://" + listener.Addr().String()),
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", "")}, ddbjournal.ClientOptions, func(o *dynamodb.Options) {
		o.RetryMaxAttempts, o.Retryer = 1, aws.NopRetryer{}
		o.HTTPClient = o.HTTPClient.(*awshttp.BuildableClient).WithTransportOptions(func(t *http.Transport) { t.ResponseHeaderTimeout = 20 * time.Millisecond })
	})
	_, err = openOn(t, c, "layover").Head(t.Context(), lane)
	if !journal.Unclear(err) {
		t.Errorf("got %v", err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	if _, err := ddbjournal.New(nil, ddbjournal.Config{Table: "t"}); err == nil {
		t.Error("a journal without a client")
	}
	if _, err := ddbjournal.New(dynamodb.New(dynamodb.Options{}), ddbjournal.Config{}); err == nil {
		t.Error("a journal without a table")
	}
}
