// Sums that are rounded once (J. R. Shewchuk, "Adaptive precision floating-point arithmetic", 1997), like Python's math.fsum.

/** The double next to the exact sum of finite doubles, ties to even. */
export function fsum(values) {
  const parts = []; // they do not overlap, and rise in size
  for (const value of values) {
    let high = value;
    let kept = 0;
    for (const part of parts) {
      let [large, small] = Math.abs(high) < Math.abs(part) ? [part, high] : [high, part];
      const sum = large + small;
      small -= sum - large;
      if (small !== 0) parts[kept++] = small;
      high = sum;
    }
    parts.length = kept;
    parts.push(high);
  }
  let high = 0;
  let low = 0;
  while (parts.length && low === 0) {
    const before = high;
    const part = parts.pop();
    high = before + part;
    low = part - (high - before);
  }
  // The last rounding was half way only if what is left says so.
  const rest = parts.at(-1) ?? 0;
  if ((low < 0 && rest < 0) || (low > 0 && rest > 0)) {
    const twice = low * 2;
    const moved = high + twice;
    if (moved - high === twice) return moved;
  }
  return high;
}
