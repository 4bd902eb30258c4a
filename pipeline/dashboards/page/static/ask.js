// Questions to the page's own server. Paths are relative, so that the page may stand below any path.

// The server ends what takes longer than page.panel_seconds: who waits longer than this waits for a server that is gone.
const WAIT_SECONDS = Number(document.body.dataset.waitSeconds);

export async function fetched(path, fields = "", left = new AbortController().signal) {
  const late = AbortSignal.timeout(WAIT_SECONDS * 1000);
  let answer;
  try {
    answer = await fetch(`${path}?${fields}`, { signal: AbortSignal.any([left, late]) });
  } catch (error) {
    if (late.aborted && !left.aborted) throw new Error(`the page's server did not answer within ${WAIT_SECONDS} s`);
    throw error;
  }
  // The login has run out: the same address asks for it.
  if (answer.status === 401) location.reload();
  if (!answer.ok) throw await problem(answer);
  return answer;
}

// `busy`: the store had not enough time, memory or turns for this one question.
// What stands before the server, such as a proxy, may answer in a form of its own.
async function problem(answer) {
  const said = await answer.json().catch(() => ({}));
  const error = new Error(said.problem ?? `${answer.status} ${answer.statusText}`.trim());
  return Object.assign(error, { busy: Boolean(said.busy) });
}

export const json = async (path, fields, left) => (await fetched(path, fields, left)).json();
export const text = async (path, fields) => (await fetched(path, fields)).text();
