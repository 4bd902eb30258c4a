// Count the blocks that each replica's engine stored and removed, each batch once. An example to copy and change.
//
//	go run . 127.0.0.1:9092 kvlens.events.v1
//
// It reads the topic from its beginning to the end that it has now. franz-go brings zstd.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"sort"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/vmihailenco/msgpack/v5"
)

// Record is what this reader needs of an EventsRecord; other fields are ignored.
type Record struct {
	Replica     string               `msgpack:"replica"`
	DPRank      int                  `msgpack:"dp_rank"`
	Incarnation uint64               `msgpack:"incarnation"`
	Batches     []msgpack.RawMessage `msgpack:"batches"`
}

// Event is one event; which fields it has depends on its type.
type Event struct {
	Type   string `msgpack:"type"`
	Hashes []byte `msgpack:"hashes"`
}

type reached struct {
	incarnation uint64
	seq         int64
}

type count struct{ stored, removed int }

// Reader applies each batch of a source once.
type Reader struct {
	reached map[string]reached
	counts  map[string]*count
}

func (r *Reader) apply(value []byte) error {
	var record Record
	if err := msgpack.Unmarshal(value, &record); err != nil {
		return err
	}
	source := fmt.Sprintf("%s/%d", record.Replica, record.DPRank)
	at, known := r.reached[source]
	if !known || record.Incarnation > at.incarnation {
		at = reached{record.Incarnation, -1}
	} else if record.Incarnation < at.incarnation {
		return nil
	}
	counted := r.counts[source]
	if counted == nil {
		counted = &count{}
		r.counts[source] = counted
	}
	for _, raw := range record.Batches {
		seq, events, err := batch(raw)
		if err != nil {
			return err
		}
		if seq == nil || *seq <= at.seq { // a notice, or a batch that was sent twice
			continue
		}
		at.seq = *seq
		for _, event := range events {
			switch event.Type {
			case "stored":
				counted.stored += len(event.Hashes) / 8
			case "removed":
				counted.removed += len(event.Hashes) / 8
			}
		}
	}
	r.reached[source] = at
	return nil
}

// batch reads the array [seq, ts, received_at, events, ...].
func batch(raw []byte) (*int64, []Event, error) {
	decoder := msgpack.NewDecoder(strings.NewReader(string(raw)))
	if _, err := decoder.DecodeArrayLen(); err != nil {
		return nil, nil, err
	}
	var seq *int64
	if err := decoder.Decode(&seq); err != nil {
		return nil, nil, err
	}
	for range 2 {
		if err := decoder.Skip(); err != nil {
			return nil, nil, err
		}
	}
	var events []Event
	err := decoder.Decode(&events)
	return seq, events, err
}

func run(ctx context.Context, servers, topic string) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(servers, ",")...),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	starts, err := admin.ListStartOffsets(ctx, topic)
	if err != nil {
		return err
	}
	ends, err := admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return err
	}
	open := map[int32]int64{}
	ends.Each(func(end kadm.ListedOffset) {
		if start, found := starts.Lookup(topic, end.Partition); found && start.Offset < end.Offset {
			open[end.Partition] = end.Offset
		}
	})
	reader := Reader{map[string]reached{}, map[string]*count{}}
	for len(open) > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			if failed := reader.apply(record.Value); failed != nil {
				err = failed
			}
			if record.Offset+1 >= open[record.Partition] {
				delete(open, record.Partition)
			}
		})
		if err != nil {
			return err
		}
	}
	sources := make([]string, 0, len(reader.counts))
	for source := range reader.counts {
		sources = append(sources, source)
	}
	sort.Strings(sources)
	for _, source := range sources {
		fmt.Printf("%s: %d stored, %d removed\n", source, reader.counts[source].stored, reader.counts[source].removed)
	}
	return nil
}

func main() {
	if err := run(context.Background(), os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}
