// Show the records of partition 0 of a topic that is written without transactions, one JSON object a line.
//
//     cargo run --release -- 127.0.0.1:9092 kvlens.events.v1
//
// rskafka has no groups, and ends at the first marker of a transaction: not for residency, figures and set.aside.
use std::env::args;
use std::error::Error;
use std::time::{Duration, Instant};

use rskafka::client::partition::{OffsetAt, UnknownTopicHandling};
use rskafka::client::ClientBuilder;
use sha2::{Digest, Sha256};

const MAX_BYTES: i32 = 16 << 20; // beyond the largest record, of 8 MB

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let given: Vec<String> = args().skip(1).collect();
    let client = ClientBuilder::new(given[0].split(',').map(String::from).collect()).build().await?;
    let partition = client.partition_client(given[1].as_str(), 0, UnknownTopicHandling::Error).await?;
    let mut offset = partition.get_offset(OffsetAt::Earliest).await?;
    let mut until = Instant::now() + Duration::from_secs(5);
    while Instant::now() < until {
        let (records, _) = partition.fetch_records(offset, 1..MAX_BYTES, 500).await?;
        for found in records {
            let value = found.record.value.as_deref();
            let line = serde_json::json!({
                "partition": 0,
                "offset": found.offset,
                "time": found.record.timestamp.timestamp_millis(),
                "key": found.record.key.as_deref().map(String::from_utf8_lossy),
                "bytes": value.map(<[u8]>::len),
                "sha256": value.map(|bytes| format!("{:x}", Sha256::digest(bytes))),
            });
            println!("{line}");
            offset = found.offset + 1;
            until = Instant::now() + Duration::from_secs(5);
        }
    }
    Ok(())
}
