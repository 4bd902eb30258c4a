// Asks the store a statement and shows the first rows as a table.

const MOST_ROWS = 1000;
const [form, statement, database, said, rows] =
  ["ask", "statement", "database", "said", "rows"].map((id) => document.getElementById(id));

function line(name, values, numbers) {
  const row = document.createElement("tr");
  for (const [place, value] of values.entries()) {
    const cell = document.createElement(name);
    cell.textContent = value !== null && typeof value === "object" ? JSON.stringify(value) : String(value);
    if (numbers[place]) cell.className = "number";
    row.append(cell);
  }
  return row;
}

function show({ meta, data, rows: count, statistics }) {
  const numbers = meta.map(({ type }) => /^(Nullable\()?(U?Int|Float|Decimal)/.test(type));
  const shown = data.slice(0, MOST_ROWS);
  rows.replaceChildren(line("th", meta.map(({ name }) => name), numbers), ...shown.map((row) => line("td", row, numbers)));
  const most = count > shown.length ? `the first ${shown.length} of at least ` : "";
  said.textContent = `${most}${count} rows in ${statistics.elapsed.toFixed(3)} s`;
}

async function ask() {
  said.className = "";
  said.textContent = "…";
  const options = new URLSearchParams({
    database: database.value,
    default_format: "JSONCompact",
    readonly: "1",
    wait_end_of_query: "1",
    max_result_rows: String(MOST_ROWS),
    result_overflow_mode: "break",
  });
  try {
    const answer = await fetch(`/?${options}`, { method: "POST", body: statement.value });
    const text = await answer.text();
    if (!answer.ok) throw new Error(text.trim());
    if (answer.headers.get("X-ClickHouse-Format") === "JSONCompact") show(JSON.parse(text));
    else {
      rows.replaceChildren(line("td", [text], [false]));
      said.textContent = "";
    }
  } catch (error) {
    rows.replaceChildren();
    said.className = "problem";
    said.textContent = error.message;
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  ask();
});
statement.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) ask();
});
