//! A client that spawns threads and calls random methods on them.

use std::rc::Rc;

use tokio::time::sleep;
use troupe_proto::supervisor::v1::{
    CloseAgentRequest, InterruptAgentRequest, OnLimit, SendInputRequest, SetThreadNoteRequest, SpawnAgentRequest,
};

use crate::{
    caller::Caller,
    shared::{Acknowledged, Promise, SharedState},
};

struct Client {
    caller: Caller,
    /// The threads that the client spawned.
    threads: Vec<String>,
}

/// Makes the requests one after the other. Each request is repeated until it has a response.
pub async fn run(name: &'static str, seed: u64, shared: Rc<SharedState>) -> turmoil::Result {
    let mut client = Client {
        caller: Caller::with_session(name, seed, Rc::clone(&shared)).await,
        threads: Vec::new(),
    };
    for number in 0..shared.plan.requests {
        let request_id = format!("{name} {number}");
        let began = shared.stamp();
        if let Some(promise) = client.request(request_id).await {
            shared.promises.borrow_mut().push(Acknowledged {
                promise,
                began,
                answered: shared.stamp(),
            });
        }
        let pause = client.caller.rng.millis(shared.plan.pause.clone());
        sleep(pause).await;
    }
    shared.done.set(shared.done.get() + 1);
    Ok(())
}

impl Client {
    /// Makes a request. Returns the promise of the response; `None` if the request was rejected.
    async fn request(&mut self, request_id: String) -> Option<Promise> {
        let choice = self.caller.rng.below(10);
        if self.threads.is_empty() || choice < 5 {
            return self.spawn(request_id).await;
        }
        let thread = self.any_thread();
        match choice {
            5 | 6 => self.send_input(request_id, thread).await,
            7 => self.set_note(request_id, thread).await,
            8 => {
                // The log cannot confirm an interrupt: the turn may already have ended, and the next turn must run.
                self.interrupt(request_id, thread).await;
                None
            }
            _ => self.close(request_id, thread).await,
        }
    }

    async fn spawn(&mut self, request_id: String) -> Option<Promise> {
        let below_root = self.threads.is_empty() || self.caller.rng.one_in(2);
        let request = SpawnAgentRequest {
            request_id: request_id.clone(),
            session_id: self.caller.session.session_id.clone(),
            parent_thread_id: if below_root { String::new() } else { self.any_thread() },
            agent_type: String::from("worker"),
            message: Some(format!("do {request_id}")),
            on_limit: self.on_limit(),
            ..SpawnAgentRequest::default()
        };
        let answer = self
            .caller
            .insist(&request, |mut client, request| async move {
                client.spawn_agent(request).await
            })
            .await;
        let thread = answer.ok()?.thread.unwrap().thread_id;
        self.threads.push(thread.clone());
        Some(Promise::Spawned { request_id, thread })
    }

    async fn send_input(&mut self, request_id: String, thread: String) -> Option<Promise> {
        let request = SendInputRequest {
            request_id: request_id.clone(),
            thread_id: thread.clone(),
            message: Some(format!("do {request_id} too")),
            interrupt: self.caller.rng.one_in(3),
            on_limit: self.on_limit(),
            ..SendInputRequest::default()
        };
        let answer = self
            .caller
            .insist(&request, |mut client, request| async move {
                client.send_input(request).await
            })
            .await;
        let number = answer.ok()?.input_number;
        Some(Promise::InputQueued {
            request_id,
            thread,
            number,
        })
    }

    async fn set_note(&mut self, request_id: String, thread: String) -> Option<Promise> {
        let request = SetThreadNoteRequest {
            thread_id: thread.clone(),
            thread_note: request_id.clone(),
            request_id: request_id.clone(),
            ..SetThreadNoteRequest::default()
        };
        let answer = self
            .caller
            .insist(&request, |mut client, request| async move {
                client.set_thread_note(request).await
            })
            .await;
        answer.ok()?;
        Some(Promise::Noted { request_id, thread })
    }

    async fn interrupt(&mut self, request_id: String, thread: String) {
        let request = InterruptAgentRequest {
            request_id,
            thread_id: thread,
            ..InterruptAgentRequest::default()
        };
        // The interrupt may be rejected.
        let _ = self
            .caller
            .insist(&request, |mut client, request| async move {
                client.interrupt_agent(request).await
            })
            .await;
    }

    async fn close(&mut self, request_id: String, thread: String) -> Option<Promise> {
        let request = CloseAgentRequest {
            request_id: request_id.clone(),
            thread_id: thread.clone(),
            ..CloseAgentRequest::default()
        };
        let answer = self
            .caller
            .insist(&request, |mut client, request| async move {
                client.close_agent(request).await
            })
            .await;
        answer.ok()?;
        Some(Promise::Closing { request_id, thread })
    }

    fn any_thread(&mut self) -> String {
        let place = self.caller.rng.below(self.threads.len() as u64);
        self.threads[usize::try_from(place).unwrap()].clone()
    }

    fn on_limit(&mut self) -> i32 {
        self.caller.rng.pick(&[OnLimit::Refuse, OnLimit::Queue]).into()
    }
}
