// Show the committed records of a topic, one JSON object a line, until nothing has come for five seconds.
//
//	go run . 127.0.0.1:9092 kvlens.figures.v1 MY_GROUP [read_uncommitted]
//
// franz-go brings zstd, and reads committed records only where it is told so.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func shown(record *kgo.Record) map[string]any {
	fields := map[string]any{
		"partition": record.Partition, "offset": record.Offset, "time": record.Timestamp.UnixMilli(),
		"key": nil, "bytes": nil, "sha256": nil,
	}
	if record.Key != nil {
		fields["key"] = string(record.Key)
	}
	if record.Value != nil {
		fields["bytes"], fields["sha256"] = len(record.Value), fmt.Sprintf("%x", sha256.Sum256(record.Value))
	}
	return fields
}

func main() {
	isolation := kgo.ReadCommitted()
	if len(os.Args) > 4 && os.Args[4] == "read_uncommitted" {
		isolation = kgo.ReadUncommitted()
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(os.Args[1], ",")...),
		kgo.ConsumeTopics(os.Args[2]),
		kgo.ConsumerGroup(os.Args[3]),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(isolation),
		kgo.DisableAutoCommit(),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	lines := json.NewEncoder(os.Stdout)
	for patience := time.Minute; ; patience = 5 * time.Second {
		wait, cancel := context.WithTimeout(context.Background(), patience)
		fetches := client.PollFetches(wait)
		cancel()
		if err := fetches.Err(); errors.Is(err, context.DeadlineExceeded) {
			break
		} else if err != nil {
			log.Fatal(err)
		}
		fetches.EachRecord(func(record *kgo.Record) { lines.Encode(shown(record)) })
	}
	if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
		log.Fatal(err)
	}
}
