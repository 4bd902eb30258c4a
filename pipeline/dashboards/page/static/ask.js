// Questions to the page's own server. Paths are relative, so that the page may stand below any path.

const TIMEOUT_MILLISECONDS = 30_000;

export async function fetched(path, fields = "", left = new AbortController().signal) {
  const answer = await fetch(`${path}?${fields}`, { signal: AbortSignal.any([left, AbortSignal.timeout(TIMEOUT_MILLISECONDS)]) });
  // The login has run out: the same address asks for it.
  if (answer.status === 401) location.reload();
  if (!answer.ok) throw new Error((await answer.json()).problem ?? answer.statusText);
  return answer;
}

export const json = async (path, fields, left) => (await fetched(path, fields, left)).json();
export const text = async (path, fields) => (await fetched(path, fields)).text();
