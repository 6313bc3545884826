// The login at the server of the page. A cookie identifies the login; the operator's token never reaches the page.

/** Notifies the other tabs of the browser when this tab logs in or out. */
const tabs = new BroadcastChannel("troupe.login");

export interface Me {
  readonly supervisor: string;
  readonly role: "operator" | "viewer";
  /** The name of the person. `null`: logged in with a link. */
  readonly user: string | null;
  readonly version: string;
}

/** Returns the login, or `undefined` without one. */
export async function me(): Promise<Me | undefined> {
  const answer = await fetch("/me");
  if (answer.status === 401) return undefined;
  if (!answer.ok) throw new Error(`the server answered ${answer.status} ${answer.statusText}`);
  return (await answer.json()) as Me;
}

/** Logs in with the code of the one-time link. Throws an `Error` with the cause. */
export async function login(code: string): Promise<void> {
  const answer = await fetch("/login", { method: "POST", headers: { "content-type": "text/plain" }, body: code });
  if (!answer.ok) throw new Error((await answer.text()).trim() || `the server answered ${answer.status}`);
  tabs.postMessage("in");
}

export async function logout(): Promise<void> {
  const answer = await fetch("/logout", { method: "POST" });
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  tabs.postMessage("out");
}

/** Runs a function when another tab logs in or out. */
export function onOtherTab(run: (change: "in" | "out") => void): void {
  tabs.onmessage = ({ data }: MessageEvent<"in" | "out">) => run(data);
}
