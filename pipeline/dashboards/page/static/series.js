// Rows of (time, [label], figures...) as one column of figures for each series, on one axis of time.

export function pivot(answer, from, to) {
  const { names, columns, step } = answer;
  const times = columns[0];
  const labelled = columns.length > 2 && columns[1].some((value) => typeof value === "string");
  const axis = [];
  const width = times.length > 1 ? Math.max(step, smallestGap(times)) : step;
  for (let at = Math.floor(from / width) * width; at <= to; at += width) axis.push(at);
  const place = new Map(axis.map((at, index) => [at, index]));
  const series = new Map();
  const put = (name, at, value) => {
    if (!series.has(name)) series.set(name, new Array(axis.length).fill(null));
    const index = place.get(at);
    if (index !== undefined) series.get(name)[index] = value;
  };
  for (let row = 0; row < times.length; row += 1) {
    if (labelled) put(columns[1][row], times[row], columns[2][row]);
    else for (let column = 1; column < columns.length; column += 1) put(names[column], times[row], columns[column][row]);
  }
  return { axis, names: [...series.keys()], values: [...series.values()] };
}

function smallestGap(times) {
  let gap = Infinity;
  for (let row = 1; row < times.length; row += 1) {
    const between = times[row] - times[row - 1];
    if (between > 0 && between < gap) gap = between;
  }
  return gap === Infinity ? 0 : gap;
}

// Each series on top of those before it; where none has a figure, there is none.
export function stacked(values) {
  const length = values.length ? values[0].length : 0;
  const sums = Array.from({ length }, (_, index) => (values.some((column) => column[index] !== null) ? 0 : null));
  return values.map((column) => column.map((value, index) => {
    if (sums[index] !== null) sums[index] += value ?? 0;
    return sums[index];
  }));
}
