// Show the committed records of a topic, one JSON object a line, until nothing has come for five seconds.
//
//     cargo run --release -- 127.0.0.1:9092 kvlens.figures.v1 MY_GROUP [read_uncommitted]
//
// librdkafka reads committed records by default. It has zstd only with the crate's feature `zstd`.
use std::env::args;
use std::process::exit;
use std::time::{Duration, Instant};

use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use sha2::{Digest, Sha256};

fn main() {
    let given: Vec<String> = args().skip(1).collect();
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", &given[0])
        .set("group.id", &given[2])
        .set("auto.offset.reset", "earliest")
        .set("enable.auto.commit", "false")
        .set("isolation.level", given.get(3).map_or("read_committed", String::as_str))
        .create()
        .expect("a consumer");
    consumer.subscribe(&[&given[1]]).expect("a subscription");
    let mut until = Instant::now() + Duration::from_secs(60);
    while Instant::now() < until {
        match consumer.poll(Duration::from_millis(200)) {
            None => {}
            Some(Err(KafkaError::MessageConsumption(RDKafkaErrorCode::NotImplemented))) => {
                eprintln!("the topic is compressed with zstd: build the crate rdkafka with its feature `zstd`");
                exit(69);
            }
            Some(Err(error)) => {
                eprintln!("{error}");
                exit(1);
            }
            Some(Ok(record)) => {
                let value = record.payload();
                let line = serde_json::json!({
                    "partition": record.partition(),
                    "offset": record.offset(),
                    "time": record.timestamp().to_millis(),
                    "key": record.key().map(String::from_utf8_lossy),
                    "bytes": value.map(<[u8]>::len),
                    "sha256": value.map(|bytes| format!("{:x}", Sha256::digest(bytes))),
                });
                println!("{line}");
                until = Instant::now() + Duration::from_secs(5);
            }
        }
    }
    if let Ok(position) = consumer.position() {
        let _ = consumer.commit(&position, CommitMode::Sync); // fails where nothing was read
    }
}
