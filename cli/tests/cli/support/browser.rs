//! A simulated browser for the web console: a cookie, the headers that browsers add, and gRPC-web.

use std::{
    fs::{self, File},
    future::Future,
    io::{BufRead as _, BufReader, Lines},
    path::PathBuf,
    pin::Pin,
    process::{Child, ChildStdout, Command, Stdio},
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::net::TcpStream;
use tonic::body::Body;
use tonic_web::{GrpcWebCall, GrpcWebClientLayer, GrpcWebClientService};
use tower::{BoxError, Layer as _, Service};
use troupe_proto::{
    console::v1::console_service_client::ConsoleServiceClient,
    registry::v1::agent_registry_service_client::AgentRegistryServiceClient,
    supervisor::v1::agent_supervisor_service_client::AgentSupervisorServiceClient,
};

use super::up::{Up, troupe};

/// The process of `troupe console`.
pub struct ConsoleProcess {
    pub process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl ConsoleProcess {
    /// Starts a console of a pair on a free port, with additional flags. Its log is in `console.log` in the home of the
    /// pair.
    pub fn start(up: &Up, flags: &[&str]) -> Self {
        let mut command = troupe(up.home.path());
        command
            .args(["console", "--supervisor", up.supervisor(), "--registry", up.registry()])
            .args(
                ["--listen", "127.0.0.1:0"]
                    .iter()
                    .filter(|_| !flags.contains(&"--listen")),
            )
            .args(["--output", "json"])
            .args(flags);
        Self::of(command, File::create(log_of(up)).unwrap())
    }

    /// Starts a command that prints login links as JSON.
    pub fn of(mut command: Command, log: impl Into<Stdio>) -> Self {
        let mut process = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines }
    }

    /// Waits for the next link.
    #[track_caller]
    pub fn url(&mut self) -> String {
        let links = self.lines.by_ref().filter_map(|line| {
            let value: Value = serde_json::from_str(&line.unwrap()).unwrap();
            Some(value["link"].as_str()?.to_owned())
        });
        { links }.next().expect("the console prints a link")
    }

    /// Waits for the next link to log in: the address of the console, and the code.
    #[track_caller]
    pub fn link(&mut self) -> (String, String) {
        let link = self.url();
        let (page, code) = link.split_once("/login#").unwrap();
        (page.to_owned(), code.to_owned())
    }

    /// Starts a browser and logs it in with the next link.
    pub async fn log_in(&mut self) -> Browser {
        let (page, code) = self.link();
        let mut browser = Browser::at(&page);
        assert_eq!(browser.log_in(&code).await.0, StatusCode::NO_CONTENT);
        browser
    }

    /// Ends the console like `kill` and returns the exit code.
    pub fn terminate(mut self) -> Option<i32> {
        let process = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw).unwrap();
        kill_process(process, Signal::TERM).unwrap();
        self.process.wait().unwrap().code()
    }
}

impl Drop for ConsoleProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the lines of the audit log of a pair's console.
pub fn audit(up: &Up) -> Vec<String> {
    let log = fs::read_to_string(log_of(up)).unwrap();
    log.lines()
        .filter(|line| line.contains("audit:"))
        .map(str::to_owned)
        .collect()
}

fn log_of(up: &Up) -> PathBuf {
    up.home.path().join("console.log")
}

/// A page in a browser. Each request uses a separate connection, which is closed after the response.
#[derive(Clone)]
pub struct Browser {
    /// `host:port` of the console.
    pub address: String,
    /// The headers of every request.
    pub headers: HeaderMap,
}

pub type Transport = GrpcWebClientService<Browser>;

impl Browser {
    /// Opens a page without a login.
    pub fn at(page: &str) -> Self {
        let address = page.strip_prefix("http://").unwrap().to_owned();
        let headers = HeaderMap::from_iter([
            (header::HOST, address.parse().unwrap()),
            (header::ORIGIN, page.parse().unwrap()),
            ("sec-fetch-site".parse().unwrap(), "same-origin".parse().unwrap()),
        ]);
        Self { address, headers }
    }

    /// Returns the same page with another value of the header, or without the header.
    pub fn with(&self, name: &'static str, value: Option<&str>) -> Self {
        let mut changed = self.clone();
        match value {
            Some(value) => changed.headers.insert(name, value.parse().unwrap()),
            None => changed.headers.remove(name),
        };
        changed
    }

    /// Sends a request and returns the response with its whole body.
    pub async fn send(&self, method: &str, path: &str, body: impl Into<Bytes>) -> Response<String> {
        self.try_send(method, path, body).await.unwrap()
    }

    /// Like [`Self::send`], for a console that may close the connection.
    pub async fn try_send(
        &self,
        method: &str,
        path: &str,
        body: impl Into<Bytes>,
    ) -> Result<Response<String>, BoxError> {
        let request = Request::builder().method(method).uri(path);
        let request = request.body(Body::new(Full::new(body.into())))?;
        let (parts, body) = self.clone().request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Response::from_parts(parts, String::from_utf8_lossy(&body).into_owned()))
    }

    /// Logs in with a code. Returns the status, and the cookie or the text.
    pub async fn log_in(&mut self, code: &str) -> (StatusCode, String) {
        let response = self.send("POST", "/login", code.to_owned()).await;
        let Some(cookie) = response.headers().get(header::SET_COOKIE) else {
            return (response.status(), response.into_body());
        };
        let cookie = cookie.to_str().unwrap().to_owned();
        let pair = cookie.split(';').next().unwrap();
        self.headers.insert(header::COOKIE, pair.parse().unwrap());
        (response.status(), cookie)
    }

    /// Returns the status and the JSON body of `/me`.
    pub async fn me(&self) -> (StatusCode, Value) {
        let response = self.send("GET", "/me", "").await;
        (
            response.status(),
            serde_json::from_str(response.body()).unwrap_or_default(),
        )
    }

    pub fn supervisor(&self) -> AgentSupervisorServiceClient<Transport> {
        AgentSupervisorServiceClient::new(GrpcWebClientLayer::new().layer(self.clone()))
    }

    pub fn registry(&self) -> AgentRegistryServiceClient<Transport> {
        AgentRegistryServiceClient::new(GrpcWebClientLayer::new().layer(self.clone()))
    }

    pub fn console(&self) -> ConsoleServiceClient<Transport> {
        ConsoleServiceClient::new(GrpcWebClientLayer::new().layer(self.clone()))
    }

    async fn request<B>(self, mut request: Request<B>) -> Result<Response<Incoming>, BoxError>
    where
        B: hyper::body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let stream = TcpStream::connect(&self.address).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let own = request.headers().clone();
        for (name, value) in self.headers.iter().filter(|(name, _)| !own.contains_key(*name)) {
            request.headers_mut().append(name, value.clone());
        }
        Ok(sender.send_request(request).await?)
    }
}

impl Service<Request<GrpcWebCall<Body>>> for Browser {
    type Response = Response<Incoming>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Incoming>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<GrpcWebCall<Body>>) -> Self::Future {
        // The page sends this content type; tonic's client omits "+proto".
        let content_type = "application/grpc-web+proto".parse().unwrap();
        request.headers_mut().insert(header::CONTENT_TYPE, content_type);
        Box::pin(self.clone().request(request))
    }
}
