// Comma-separated values.

/** Matches a cell that spreadsheets interpret as a formula. */
const FORMULA = /^[=+\-@\t\r]/;

/** Returns rows as CSV, with the names of the columns first. */
export function csv(columns: readonly string[], rows: readonly (readonly string[])[]): string {
  return [columns, ...rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

function cell(value: string): string {
  const safe = FORMULA.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
