// Show the committed records of a topic, one JSON object a line, until nothing has come for five seconds.
//
//	go run . 127.0.0.1:9092 kvlens.figures.v1 MY_GROUP [read_uncommitted]
//
// sarama brings zstd, and reads committed records only where it is told so.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

type handler struct{ came chan struct{} }

func (h handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (h handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (h handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	lines := json.NewEncoder(os.Stdout)
	for record := range claim.Messages() {
		lines.Encode(shown(record))
		session.MarkMessage(record, "")
		h.came <- struct{}{}
	}
	return nil
}

func shown(record *sarama.ConsumerMessage) map[string]any {
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
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	if len(os.Args) > 4 && os.Args[4] == "read_uncommitted" {
		config.Consumer.IsolationLevel = sarama.ReadUncommitted
	}
	group, err := sarama.NewConsumerGroup(strings.Split(os.Args[1], ","), os.Args[3], config)
	if err != nil {
		log.Fatal(err)
	}
	until, stop := context.WithCancel(context.Background())
	came := make(chan struct{})
	go func() {
		for patience := time.Minute; ; patience = 5 * time.Second {
			select {
			case <-came:
			case <-time.After(patience):
				stop()
				return
			}
		}
	}()
	for until.Err() == nil {
		if err := group.Consume(until, []string{os.Args[2]}, handler{came}); err != nil {
			log.Fatal(err)
		}
	}
	if err := group.Close(); err != nil { // commits
		log.Fatal(err)
	}
}
