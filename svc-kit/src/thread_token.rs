//! Thread tokens: credentials with which a service identifies a thread without trusting the request.
//!
//! ```text
//! trp1.<kid>.<b64url(payload)>.<b64url(HMAC-SHA256(key[kid], DOMAIN || kid || "." || b64url(payload)))>
//! payload = session (16 bytes) || thread (16 bytes) || generation (4 bytes, big endian)
//! ```
//!
//! A token contains no permissions and no expiry. The service looks up permissions, and a token ends when its thread
//! ends or gets a new generation. A thread and a generation always have the same token, so a repeated spawn returns the
//! first token. The caller cannot find out why a token was rejected.

use std::{fmt, path::Path};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use uuid::Uuid;

use crate::{
    identity::ThreadPrincipal,
    private_file,
    secret::{MAX_TOKEN_BYTES, SecretError, random},
};

/// The name of the key file in the data directory.
pub const KEYS_FILE: &str = "token.keys";

/// The format version. A change of the payload requires a new one.
const VERSION: &str = "trp1";
/// Domain separation: if another program uses the same key, this MAC has no meaning there.
const DOMAIN: &[u8] = b"troupe/supervisor/thread-token/v1\0";
/// Domain separation for the token of a cluster's members.
const MEMBER_DOMAIN: &[u8] = b"troupe/supervisor/member-token/v1\0";
const PAYLOAD_BYTES: usize = 36;
const MIN_KEY_BYTES: usize = 32;
const MAX_KID_BYTES: usize = 16;
/// Maximum number of keys. It is more than a rotation needs.
const MAX_KEYS: usize = 8;

/// The number of retired keys that are still accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetiredKeys(usize);

impl RetiredKeys {
    /// The maximum: all keys except the active one.
    pub const ALL: Self = Self(MAX_KEYS - 1);

    /// Creates the number. Returns `None` if it exceeds the maximum.
    #[must_use]
    pub fn new(keys: usize) -> Option<Self> {
        (keys <= Self::ALL.0).then_some(Self(keys))
    }

    /// Returns the number.
    #[must_use]
    pub const fn get(self) -> usize {
        self.0
    }
}

#[derive(Clone)]
struct Key {
    kid: String,
    /// The keyed MAC. Each use works on a copy.
    mac: Hmac<Sha256>,
}

impl Key {
    fn new(kid: &str, secret: &[u8]) -> Option<Self> {
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let named = (1..=MAX_KID_BYTES).contains(&kid.len()) && kid.bytes().all(legal);
        if !named || secret.len() < MIN_KEY_BYTES {
            return None;
        }
        Some(Self {
            kid: kid.to_owned(),
            mac: Hmac::new_from_slice(secret).ok()?,
        })
    }

    fn over(&self, payload: &str) -> Hmac<Sha256> {
        self.mac
            .clone()
            .chain_update(DOMAIN)
            .chain_update(self.kid.as_bytes())
            .chain_update(b".")
            .chain_update(payload.as_bytes())
    }
}

/// The keys of thread tokens. The active key signs; all keys verify.
#[derive(Clone)]
pub struct TokenKeys {
    active: Key,
    retired: Vec<Key>,
}

impl fmt::Debug for TokenKeys {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let retired: Vec<&str> = self.retired.iter().map(|key| key.kid.as_str()).collect();
        out.debug_struct("TokenKeys")
            .field("active", &self.active.kid)
            .field("retired", &retired)
            .finish_non_exhaustive()
    }
}

impl TokenKeys {
    /// Generates a random key in memory, so that its tokens end with the process. For tests and in-memory stores.
    ///
    /// # Errors
    ///
    /// The operating system has no random bytes.
    pub fn generate() -> Result<Self, SecretError> {
        Self::parse(&new_file()?).map_err(|problem| SecretError::Random(problem.to_owned()))
    }

    /// Loads `token.keys` from `dir`. Creates the file with one key and mode 0600 if it is missing.
    ///
    /// The file has one line `<kid> <key in base64url>` per key. The first key signs; the others are still accepted
    /// (see [`Self::rotate`]). The caller must hold the lock of the directory ([`crate::paths::DataDir`]).
    ///
    /// # Errors
    ///
    /// The file cannot be read, written or protected, or contains no keys.
    pub fn load_or_create(dir: &Path) -> Result<Self, SecretError> {
        let text = Self::file(dir)?;
        let path = dir.join(KEYS_FILE);
        Self::parse(&text).map_err(|problem| SecretError::Malformed { path, problem })
    }

    /// Returns the content of `token.keys` in `dir`. Creates the file if it is missing.
    ///
    /// # Errors
    ///
    /// The file cannot be read, written or protected.
    pub fn file(dir: &Path) -> Result<String, SecretError> {
        let path = dir.join(KEYS_FILE);
        match private_file::read(&path).map_err(|why| SecretError::unusable(&path, why))? {
            Some(text) => Ok(text),
            None => {
                let text = new_file()?;
                private_file::replace(&path, text.as_bytes(), private_file::PRIVATE).map_err(|cause| {
                    SecretError::Write {
                        path: path.clone(),
                        cause,
                    }
                })?;
                Ok(text)
            }
        }
    }

    /// Parses the content of a key file.
    ///
    /// # Errors
    ///
    /// The text describes the defect.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let mut keys: Vec<Key> = Vec::new();
        for line in key_lines(text) {
            let (kid, secret) = line.split_once(' ').ok_or("a line is not `<kid> <key>`")?;
            let secret = URL_SAFE_NO_PAD
                .decode(secret.trim())
                .map_err(|_| "a key is not base64url without padding")?;
            let key = Key::new(kid, &secret)
                .ok_or("a key id is not 1 to 16 characters of A-Z a-z 0-9 - _, or a key is too short")?;
            if keys.iter().any(|other| other.kid == key.kid) {
                return Err("a key id occurs twice");
            }
            keys.push(key);
        }
        if keys.len() > MAX_KEYS {
            return Err("it has more than 8 keys");
        }
        let mut keys = keys.into_iter();
        let active = keys.next().ok_or("it has no key")?;
        Ok(Self {
            active,
            retired: keys.collect(),
        })
    }

    /// Returns the token with which the members of a cluster that share these keys recognise each other.
    #[must_use]
    pub fn member_token(&self) -> String {
        let mac = self.active.mac.clone().chain_update(MEMBER_DOMAIN).finalize();
        URL_SAFE_NO_PAD.encode(mac.into_bytes())
    }

    /// Adds a new key at the top of `token.keys` in `dir`. The new key signs after the next start, and the newest
    /// `keep` of the previous keys are still accepted. Returns the number of keys, or `None` if the file does not
    /// exist; the next start then creates it. The caller must hold the lock of the directory.
    ///
    /// # Errors
    ///
    /// The file cannot be read, written or protected, or contains no keys.
    pub fn rotate(dir: &Path, keep: RetiredKeys) -> Result<Option<usize>, SecretError> {
        let path = dir.join(KEYS_FILE);
        let Some(old) = private_file::read(&path).map_err(|why| SecretError::unusable(&path, why))? else {
            return Ok(None);
        };
        let malformed = |problem| SecretError::Malformed {
            path: path.clone(),
            problem,
        };
        Self::parse(&old).map_err(malformed)?;
        let (text, keys) = Self::rotated(&old, keep)?;
        private_file::replace(&path, text.as_bytes(), private_file::PRIVATE)
            .map_err(|cause| SecretError::Write { path, cause })?;
        Ok(Some(keys))
    }

    /// Returns the content of a key file, and the number of its keys. The keys are a new one at the top and the `keep`
    /// newest keys of the content `old`.
    ///
    /// # Errors
    ///
    /// The operating system has no random bytes, or a key of `old` is invalid.
    pub fn rotated(old: &str, keep: RetiredKeys) -> Result<(String, usize), SecretError> {
        let mut text = new_file()?;
        for line in key_lines(old).take(keep.0) {
            text.push_str(line);
            text.push('\n');
        }
        // Equal ids are so rare that an error is sufficient.
        let keys = Self::parse(&text).map_err(|problem| SecretError::Random(problem.to_owned()))?;
        Ok((text, 1 + keys.retired.len()))
    }

    /// Copies the key file from one directory to another with mode 0600. Threads can use a copied log only with the
    /// keys of their tokens. Returns whether the file exists.
    ///
    /// # Errors
    ///
    /// The file cannot be read or protected, contains no keys, or the copy cannot be written.
    pub fn copy(from: &Path, to: &Path) -> Result<bool, SecretError> {
        let path = from.join(KEYS_FILE);
        let Some(text) = private_file::read(&path).map_err(|why| SecretError::unusable(&path, why))? else {
            return Ok(false);
        };
        Self::parse(&text).map_err(|problem| SecretError::Malformed { path, problem })?;
        let path = to.join(KEYS_FILE);
        private_file::replace(&path, text.as_bytes(), private_file::PRIVATE)
            .map_err(|cause| SecretError::Write { path, cause })?;
        Ok(true)
    }

    /// Returns the token of a thread's generation.
    #[must_use]
    pub fn mint(&self, thread: &ThreadPrincipal) -> String {
        let payload = URL_SAFE_NO_PAD.encode(encode(thread));
        let mac = URL_SAFE_NO_PAD.encode(self.active.over(&payload).finalize().into_bytes());
        format!("{VERSION}.{}.{payload}.{mac}", self.active.kid)
    }

    /// Returns the thread and the generation of a token if one of these keys signed it.
    ///
    /// The caller must check that the generation is the thread's current one.
    #[must_use]
    pub fn verify(&self, token: &str) -> Option<ThreadPrincipal> {
        if token.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let mut parts = token.split('.');
        let (Some(VERSION), Some(kid), Some(payload), Some(mac), None) =
            (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return None;
        };
        let key = std::iter::once(&self.active)
            .chain(&self.retired)
            .find(|key| key.kid == kid)?;
        let mac = URL_SAFE_NO_PAD.decode(mac).ok()?;
        key.over(payload).verify_slice(&mac).ok()?;
        decode(&URL_SAFE_NO_PAD.decode(payload).ok()?)
    }
}

/// Returns the lines of a key file that contain a key.
fn key_lines(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Returns a key file with a new key.
fn new_file() -> Result<String, SecretError> {
    let id = random()?;
    // Six characters distinguish keys. An id is not secret.
    let kid: String = URL_SAFE_NO_PAD.encode(id).chars().take(6).collect();
    let key = URL_SAFE_NO_PAD.encode(random()?);
    Ok(format!(
        "# Keys of thread tokens: <kid> <key>. The first key signs; all keys verify.\n{kid} {key}\n"
    ))
}

fn encode(thread: &ThreadPrincipal) -> Vec<u8> {
    let mut payload = Vec::with_capacity(PAYLOAD_BYTES);
    payload.extend_from_slice(thread.session.as_bytes());
    payload.extend_from_slice(thread.thread.as_bytes());
    payload.extend_from_slice(&thread.generation.to_be_bytes());
    payload
}

fn decode(payload: &[u8]) -> Option<ThreadPrincipal> {
    let (session, rest) = payload.split_first_chunk::<16>()?;
    let (thread, rest) = rest.split_first_chunk::<16>()?;
    Some(ThreadPrincipal {
        session: Uuid::from_bytes(*session),
        thread: Uuid::from_bytes(*thread),
        generation: u32::from_be_bytes(rest.try_into().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use proptest::prelude::*;

    use super::*;

    fn keys() -> TokenKeys {
        TokenKeys::parse("k1 AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8\n").unwrap()
    }

    fn thread() -> ThreadPrincipal {
        ThreadPrincipal {
            session: Uuid::from_u128(0x0192_0000_0000_7000_8000_0000_0000_0001),
            thread: Uuid::from_u128(0x0192_0000_0000_7000_8000_0000_0000_0002),
            generation: 7,
        }
    }

    prop_compose! {
        fn any_thread()(session in any::<u128>(), thread in any::<u128>(), generation in any::<u32>()) -> ThreadPrincipal {
            ThreadPrincipal { session: Uuid::from_u128(session), thread: Uuid::from_u128(thread), generation }
        }
    }

    proptest! {
        #[test]
        fn minted_token_verifies_to_its_thread(thread in any_thread()) {
            let token = keys().mint(&thread);
            prop_assert!(token.len() <= MAX_TOKEN_BYTES);
            prop_assert_eq!(keys().mint(&thread), token.clone());
            prop_assert_eq!(keys().verify(&token), Some(thread));
        }

        #[test]
        fn token_with_any_flipped_bit_is_rejected(thread in any_thread(), at in any::<prop::sample::Index>(), bit in 0..8u32) {
            let mut bytes = keys().mint(&thread).into_bytes();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            if let Ok(token) = String::from_utf8(bytes) {
                prop_assert_eq!(keys().verify(&token), None);
            }
        }

        #[test]
        fn arbitrary_text_is_rejected_without_panic(text in any::<String>()) {
            prop_assert_eq!(keys().verify(&text), None);
            let prefixed = format!("trp1.k1.{text}.{text}");
            prop_assert_eq!(keys().verify(&prefixed), None);
        }
    }

    #[test]
    fn tokens_of_other_keys_lengths_and_versions_are_rejected() {
        let token = keys().mint(&thread());
        let other = TokenKeys::parse("k1 ICECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8\n").unwrap();
        let wrong = [
            String::new(),
            "trp1".to_owned(),
            "trp1...".to_owned(),
            other.mint(&thread()),
            token.replacen("trp1", "trp2", 1),
            token.replacen(".k1.", ".k2.", 1),
            format!("{token}."),
            format!("{token}A"),
            format!("{token}="),
            format!(" {token}"),
            token[..token.len() - 1].to_owned(),
            format!("{token}{}", "A".repeat(MAX_TOKEN_BYTES)),
        ];
        for wrong in wrong {
            assert_eq!(keys().verify(&wrong), None, "{wrong}");
        }
        assert_eq!(keys().verify(&token), Some(thread()));
    }

    #[test]
    fn retired_key_verifies_but_does_not_sign() {
        let old = keys();
        let both = TokenKeys::parse(
            "# new on top\nk2 ICECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8\nk1 AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8\n",
        )
        .unwrap();
        assert_eq!(both.verify(&old.mint(&thread())), Some(thread()));
        let token = both.mint(&thread());
        assert!(token.starts_with("trp1.k2."));
        assert_eq!(old.verify(&token), None);
    }

    #[test]
    fn keys_are_created_once_with_mode_0600() {
        let directory = tempfile::tempdir().unwrap();
        let token = TokenKeys::load_or_create(directory.path()).unwrap().mint(&thread());
        let again = TokenKeys::load_or_create(directory.path()).unwrap();
        assert_eq!(again.verify(&token), Some(thread()));
        let mode = fs::metadata(directory.path().join(KEYS_FILE))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn rotation_adds_key_and_limits_retired_keys() {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path();
        assert_eq!(TokenKeys::rotate(dir, RetiredKeys::ALL).unwrap(), None);
        assert!(!dir.join(KEYS_FILE).exists(), "no file is created");

        let first = TokenKeys::load_or_create(dir).unwrap().mint(&thread());
        for keys in (2..=MAX_KEYS).chain([MAX_KEYS]) {
            let last = TokenKeys::load_or_create(dir).unwrap().mint(&thread());
            assert_eq!(TokenKeys::rotate(dir, RetiredKeys::ALL).unwrap(), Some(keys));
            let now = TokenKeys::load_or_create(dir).unwrap();
            assert_eq!(now.verify(&last), Some(thread()));
            assert_ne!(now.mint(&thread()), last);
        }
        assert_eq!(TokenKeys::load_or_create(dir).unwrap().verify(&first), None);

        let last = TokenKeys::load_or_create(dir).unwrap().mint(&thread());
        let none = RetiredKeys::new(0).unwrap();
        assert_eq!(TokenKeys::rotate(dir, none).unwrap(), Some(1));
        assert_eq!(TokenKeys::load_or_create(dir).unwrap().verify(&last), None);
        let mode = fs::metadata(dir.join(KEYS_FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(RetiredKeys::new(MAX_KEYS), None);
    }

    #[test]
    fn malformed_key_files_are_rejected() {
        let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";
        let many: String = (0..9).map(|n| format!("k{n} {key}\n")).collect();
        for text in [
            "",
            "# nothing\n",
            "k1\n",
            "k1 AAEC\n",
            "k1 not base64!\n",
            &format!("a.b {key}"),
            &format!("k1 {key}\nk1 {key}"),
            &many,
        ] {
            assert!(TokenKeys::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn keys_are_absent_from_debug_output() {
        let keys = keys();
        assert_eq!(format!("{keys:?}"), r#"TokenKeys { active: "k1", retired: [], .. }"#);
    }
}
