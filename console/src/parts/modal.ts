/** Opens a dialog. When it is gone, the focus returns to the element that had it. */
export function modal(dialog: HTMLDialogElement): () => void {
  const opener = document.activeElement;
  dialog.showModal();
  return () =>
    queueMicrotask(() => {
      if (opener instanceof HTMLElement && opener.isConnected) opener.focus({ preventScroll: true });
    });
}
