// Command first_use creates topics, uses each of them at once, adds partitions, and uses those at once.
//
//	first_use BOOTSTRAP PREFIX TOPICS
//
// Requests, records and unknown topics are not retried. The log of the clients is on stderr: it names the errors that a
// client absorbs in its metadata.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	created  = 3
	grown    = 6
	replicas = 3
	limit    = 60 * time.Second
)

func main() {
	bootstrap := strings.Split(os.Args[1], ",")
	topics, err := strconv.Atoi(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	admin := kadm.NewClient(client(bootstrap))
	defer admin.Close()
	for number := 0; number < topics; number++ {
		topic := fmt.Sprintf("%s-%d", os.Args[2], number)
		if err := use(ctx, admin, bootstrap, topic); err != nil {
			log.Fatalf("topic %s: %v", topic, err)
		}
		fmt.Println("used", topic)
	}
}

// use creates a topic, and makes it larger. A new client after each change has no metadata of the topic.
func use(ctx context.Context, admin *kadm.Client, bootstrap []string, topic string) error {
	if _, err := admin.CreateTopic(ctx, created, replicas, nil, topic); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if err := write(ctx, bootstrap, topic, 0, created); err != nil {
		return err
	}
	if err := read(ctx, bootstrap, topic, created); err != nil {
		return err
	}
	responses, err := admin.UpdatePartitions(ctx, grown, topic)
	if err == nil {
		err = responses[topic].Err
	}
	if err != nil {
		return fmt.Errorf("add partitions: %w", err)
	}
	if err := write(ctx, bootstrap, topic, created, grown); err != nil {
		return err
	}
	return read(ctx, bootstrap, topic, grown)
}

// write sends one record to each partition from first to last, exclusively.
func write(ctx context.Context, bootstrap []string, topic string, first, last int32) error {
	// A producer id needs a retry: a broker requests its first block of ids when the first client asks. One "retry" is
	// the first attempt.
	producer := client(bootstrap, kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.UnknownTopicRetries(0), kgo.RecordRetries(1), kgo.DisableIdempotentWrite())
	defer producer.Close()
	var records []*kgo.Record
	for partition := first; partition < last; partition++ {
		value := []byte(strconv.Itoa(int(partition)))
		records = append(records, &kgo.Record{Topic: topic, Partition: partition, Value: value})
	}
	if err := producer.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	return nil
}

// read receives the records of all partitions.
func read(ctx context.Context, bootstrap []string, topic string, count int) error {
	consumer := client(bootstrap, kgo.ConsumeTopics(topic), kgo.KeepRetryableFetchErrors(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer consumer.Close()
	values := map[string]bool{}
	for len(values) < count {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("consume: %w", err)
		}
		fetches.EachRecord(func(record *kgo.Record) { values[string(record.Value)] = true })
	}
	return nil
}

func client(bootstrap []string, options ...kgo.Opt) *kgo.Client {
	options = append(options, kgo.SeedBrokers(bootstrap...), kgo.RequestRetries(0),
		kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelDebug, nil)))
	made, err := kgo.NewClient(options...)
	if err != nil {
		log.Fatal(err)
	}
	return made
}
