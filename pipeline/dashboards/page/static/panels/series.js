// Rows of (time, [label], figures...) as one column of figures for each series, on one axis of time.

// The points of time of a range: `answer.step` is the width of a point, and points begin at its multiples.
export function points(from, to, step) {
  const first = Math.floor(from / step) * step;
  return { first, step, count: Math.floor((to - first) / step) + 1, of: (at) => Math.round((at - first) / step) };
}

export function pivot(answer, from, to) {
  const { names, columns, step } = answer;
  const times = columns[0];
  const labelled = columns.length > 2 && columns[1].some((value) => typeof value === "string");
  const { first, count, of } = points(from, to, step);
  const axis = Array.from({ length: count }, (_, index) => first + index * step);
  const series = new Map();
  const put = (name, at, value) => {
    if (!series.has(name)) series.set(name, new Array(count).fill(null));
    const index = of(at);
    if (index >= 0 && index < count) series.get(name)[index] = value;
  };
  for (let row = 0; row < times.length; row += 1) {
    if (labelled) put(columns[1][row], times[row], columns[2][row]);
    else for (let column = 1; column < columns.length; column += 1) put(names[column], times[row], columns[column][row]);
  }
  return { axis, names: [...series.keys()], values: [...series.values()] };
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

// The figures of the newest time that has any: what a series had before that is not its newest.
export function newest(values) {
  for (let index = (values[0]?.length ?? 0) - 1; index >= 0; index -= 1) {
    if (values.some((column) => column[index] !== null)) return values.map((column) => column[index]);
  }
  return values.map(() => null);
}

// The largest figure that sets a scale. What is added up as `others` sets none: it would make slivers of the rest.
export function largest(names, values) {
  const setting = values.filter((_, index) => names[index] !== "others");
  return (setting.length ? setting : values).flat().reduce((most, value) => Math.max(most, value ?? 0), 0);
}
