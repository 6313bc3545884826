//! A session's state as clients read it: from the service, and as expected from its log alone.

use std::sync::Arc;

use supervisor_core::{
    ids::ThreadId,
    rules::graph,
    state::{approval::Approval, session::Session},
};
use supervisor_log::codec::parts::edge_to_pb;
use supervisor_svc::convert::{
    View,
    approval::approval_to_pb,
    mail::letter_to_pb,
    thread::{quota, session, thread},
};
use troupe_proto::supervisor::v1::{
    self as pb, ConditionKind, GetQuotaRequest, ListActiveAgentsRequest, ListApprovalsRequest, ListEdgesRequest,
    ListMailboxRequest,
};
use troupe_tests::{tree::Tree, within};

/// The responses of all read methods, with the mail of one mailbox.
pub struct Answers {
    session: pb::Session,
    threads: Vec<pb::Thread>,
    quota: pb::Quota,
    edges: Vec<pb::Edge>,
    approvals: Vec<pb::Approval>,
    mail: Vec<pb::Mail>,
}

impl Answers {
    /// Reads the answers from the service, without the condition NO_RUNNER, which cannot be derived from the log.
    /// `session` is an earlier response of GetSession.
    pub async fn of_service(tree: &Tree, session: pb::Session, mailbox: ThreadId) -> Self {
        let session_id = || tree.session.clone();
        let everything = ListActiveAgentsRequest {
            session_id: session_id(),
            include_tree: true,
            include_closed: true,
            include_self: true,
            ..ListActiveAgentsRequest::default()
        };
        let listed = within("the threads", tree.client().list_active_agents(everything)).await;
        let mut threads = listed.unwrap().into_inner().threads;
        for thread in &mut threads {
            thread
                .conditions
                .retain(|condition| condition.kind() != ConditionKind::NoRunner);
        }
        let of_root = GetQuotaRequest {
            session_id: session_id(),
            ..GetQuotaRequest::default()
        };
        let quota = within("the quota", tree.client().get_quota(of_root)).await;
        let all = ListEdgesRequest {
            session_id: session_id(),
            ..ListEdgesRequest::default()
        };
        let edges = within("the edges", tree.client().list_edges(all)).await;
        let all = ListApprovalsRequest {
            session_id: session_id(),
            include_resolved: true,
            ..ListApprovalsRequest::default()
        };
        let approvals = within("the approvals", tree.client().list_approvals(all)).await;
        Self {
            session,
            threads,
            quota: quota.unwrap().into_inner().quota.unwrap(),
            edges: edges.unwrap().into_inner().edges,
            approvals: approvals.unwrap().into_inner().approvals,
            mail: mail_of_service(tree, mailbox).await,
        }
    }

    /// Returns the expected answers according to the log alone.
    pub fn of_log(state: &Session, mailbox: ThreadId) -> Self {
        let root = state.thread(state.root_id().unwrap()).unwrap();
        let view = View {
            tree: true,
            ..View::default()
        };
        let mut approvals: Vec<&Arc<Approval>> = state.approvals.values().collect();
        approvals.sort_by_key(|approval| approval.sequence);
        Self {
            session: session(state),
            threads: state.in_spawn_order().map(|of| thread(state, of, view)).collect(),
            quota: quota(state, root),
            edges: graph::edges_within(state, root.id)
                .iter()
                .map(|edge| edge_to_pb(edge))
                .collect(),
            approvals: approvals
                .into_iter()
                .map(|approval| approval_to_pb(state, approval))
                .collect(),
            mail: mail_of_log(state, mailbox),
        }
    }

    /// Checks that the answers equal the expected answers.
    #[track_caller]
    pub fn assert_equal(&self, expected: &Self) {
        assert_eq!(self.session, expected.session, "GetSession");
        let (threads, others) = (&self.threads, &expected.threads);
        assert_eq!(threads.len(), others.len(), "ListActiveAgents");
        for (thread, other) in threads.iter().zip(others) {
            assert_eq!(thread, other, "ListActiveAgents");
        }
        assert_eq!(self.quota, expected.quota, "GetQuota");
        assert_eq!(self.edges, expected.edges, "ListEdges");
        assert_eq!(self.approvals, expected.approvals, "ListApprovals");
        assert_eq!(self.mail, expected.mail, "ListMailbox");
    }
}

/// Returns the mail that ListMailbox returns for a thread.
pub async fn mail_of_service(tree: &Tree, mailbox: ThreadId) -> Vec<pb::Mail> {
    let of = ListMailboxRequest {
        session_id: tree.session.clone(),
        thread_id: mailbox.to_string(),
        ..ListMailboxRequest::default()
    };
    let mail = within("a mailbox", tree.client().list_mailbox(of)).await;
    mail.unwrap().into_inner().mail
}

/// Returns the mail that should be pending according to the log alone.
pub fn mail_of_log(state: &Session, mailbox: ThreadId) -> Vec<pb::Mail> {
    let thread = state.thread(mailbox).unwrap();
    thread
        .mail
        .letters()
        .map(|letter| letter_to_pb(letter, false))
        .collect()
}
