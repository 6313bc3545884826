// Files that the page gives to the browser.

/** Saves bytes under a name that has no path. */
export function save(name: string, parts: BlobPart[], type = "application/octet-stream"): void {
  const url = URL.createObjectURL(new Blob(parts, { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name.replace(/[^\w.-]+/g, "_");
  link.click();
  URL.revokeObjectURL(url);
}
