// Distributions that calibrators need and JavaScript does not have.

/** ln(n!) for n = 0, 1, ..., by compensated sums of logarithms. */
const logFactorials = [0];
let carried = 0;
function logFactorial(n) {
  for (let k = logFactorials.length; k <= n; k += 1) {
    const before = logFactorials[k - 1];
    const term = Math.log(k) - carried;
    const sum = before + term;
    carried = sum - before - term;
    logFactorials.push(sum);
  }
  return logFactorials[n];
}

/** P(X <= k) for X binomial(n, p). */
export function binomialCdf(k, n, p) {
  if (k >= n) return 1;
  let sum = 0;
  // from the largest term down, so that small ones are added last to what they can still change
  const terms = [];
  for (let i = 0; i <= k; i += 1) {
    terms.push(Math.exp(logFactorial(n) - logFactorial(i) - logFactorial(n - i) + i * Math.log(p) + (n - i) * Math.log1p(-p)));
  }
  terms.sort((a, b) => a - b);
  for (const term of terms) sum += term;
  return Math.min(1, sum);
}

const LANCZOS = [
  0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
  12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
]; // C. Lanczos' approximation with g = 7

function logGamma(x) {
  let sum = LANCZOS[0];
  for (let i = 1; i < LANCZOS.length; i += 1) sum += LANCZOS[i] / (x - 1 + i);
  const t = x + 6.5;
  return 0.5 * Math.log(2 * Math.PI) + (x - 0.5) * Math.log(t) - t + Math.log(sum);
}

/** The regularised lower incomplete gamma function P(a, x), or its complement, whichever is asked for. */
function incompleteGamma(a, x, upper) {
  if (x <= 0) return upper ? 1 : 0;
  const front = Math.exp(a * Math.log(x) - x - logGamma(a));
  let value;
  let isUpper;
  if (x < a + 1) {
    let term = 1 / a;
    let sum = term;
    for (let n = 1; n < 100000 && Math.abs(term) > Math.abs(sum) * 1e-17; n += 1) {
      term *= x / (a + n);
      sum += term;
    }
    value = front * sum;
    isUpper = false;
  } else {
    // the continued fraction, by Lentz' method
    let b = x + 1 - a;
    let c = 1e300;
    let d = 1 / b;
    let h = d;
    for (let i = 1; i < 100000; i += 1) {
      const an = -i * (i - a);
      b += 2;
      d = 1 / (an * d + b);
      c = b + an / c;
      const step = d * c;
      h *= step;
      if (Math.abs(step - 1) < 1e-16) break;
    }
    value = front * h;
    isUpper = true;
  }
  return upper === isUpper ? value : 1 - value;
}

/** The x with P(a, x) = u. */
export function gammaQuantile(a, u) {
  const upper = u > 0.5;
  const target = upper ? 1 - u : u;
  const below = (x) => (upper ? incompleteGamma(a, x, true) > target : incompleteGamma(a, x, false) < target);
  let low = 0;
  let high = Math.max(1, a);
  while (below(high)) high *= 2;
  for (let i = 0; i < 2000; i += 1) {
    const middle = low === 0 && high > 1e-300 ? high / 2 : (low + high) / 2;
    if (middle <= low || middle >= high) break;
    if (below(middle)) low = middle;
    else high = middle;
    if (low > 0 && high - low <= 4e-16 * high) break;
  }
  return (low + high) / 2;
}

/** The z >= 0 that a standard normal number exceeds with probability delta <= 1/2. */
export function normalQuantile(delta) {
  const above = (z) => incompleteGamma(0.5, (z * z) / 2, true) / 2;
  let low = 0;
  let high = 40;
  for (let i = 0; i < 200 && high > low; i += 1) {
    const middle = (low + high) / 2;
    if (above(middle) > delta) low = middle;
    else high = middle;
  }
  return (low + high) / 2;
}

/** The double before a positive or negative one, towards minus infinity. */
export function doubleBelow(value) {
  return doubleOf(rankOf(value) - 1n);
}

/** Doubles numbered in rising order, 0 being 0. */
export function rankOf(value) {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, value);
  const bits = view.getBigInt64(0);
  return bits >= 0n ? bits : -(bits & 0x7fffffffffffffffn);
}

export function doubleOf(rank) {
  const view = new DataView(new ArrayBuffer(8));
  view.setBigInt64(0, rank < 0n ? -rank : rank);
  const size = view.getFloat64(0);
  return rank < 0n ? -size : size;
}

/** A running sum in two doubles, so that the order of the terms does not show. */
export class Sum {
  high = 0;
  low = 0;

  add(term) {
    const sum = this.high + term;
    this.low += Math.abs(this.high) >= Math.abs(term) ? this.high - sum + term : term - sum + this.high;
    this.high = sum;
    return this;
  }

  get value() {
    return this.high + this.low;
  }
}
