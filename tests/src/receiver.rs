//! A receiver of webhooks over plain HTTP/1.1 whose responses a test decides, one request at a time.

use std::{collections::BTreeMap, net::SocketAddr};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
};

use crate::within;

/// A receiver on a free port. A caller receives its response only when the test calls [`Receiver::next`].
#[derive(Debug)]
pub struct Receiver {
    listener: TcpListener,
    address: SocketAddr,
}

/// A request to a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The request line: `POST /hook HTTP/1.1`.
    pub line: String,
    /// The headers, with names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The body.
    pub body: Vec<u8>,
}

impl Received {
    /// Returns the value of a header.
    ///
    /// # Panics
    ///
    /// If there is no header with that name.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.unwrap_or_else(|| panic!("no {name} in {:?}", self.headers))
    }

    /// Returns the body as JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

impl Receiver {
    /// Starts a receiver on a free port.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        Self { listener, address }
    }

    /// Returns the URL of the receiver.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// Answers the next complete request with a status and returns the request.
    pub async fn next(&self, status: u16) -> Received {
        within("a delivery", async {
            loop {
                let (stream, _) = self.listener.accept().await.unwrap();
                // An incomplete request does not count.
                if let Ok(received) = exchange(stream, status).await {
                    return received;
                }
            }
        })
        .await
    }
}

async fn exchange(stream: TcpStream, status: u16) -> std::io::Result<Received> {
    let mut stream = BufReader::new(stream);
    let line = line(&mut stream).await?;
    let mut headers = BTreeMap::new();
    loop {
        let header = self::line(&mut stream).await?;
        let Some((name, value)) = header.split_once(':') else {
            break;
        };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let length = headers
        .get("content-length")
        .map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    let location = "location: http://127.0.0.1:1/\r\n";
    let answer = format!("HTTP/1.1 {status} X\r\n{location}content-length: 0\r\nconnection: close\r\n\r\n");
    stream.write_all(answer.as_bytes()).await?;
    stream.flush().await?;
    Ok(Received { line, headers, body })
}

async fn line(stream: &mut BufReader<TcpStream>) -> std::io::Result<String> {
    let mut line = String::new();
    if stream.read_line(&mut line).await? == 0 {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end().to_owned())
}
